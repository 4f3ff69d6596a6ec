#!/bin/sh
# Trains a GPT-2 on text files, and exports it: pretrain_gpt2.sh DIRECTORY HELD_OUT TEXT...   (needs gantry in PATH)
# Writes corpus/, runs/ and model/ into DIRECTORY.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 held_out=$2
shift 2
mkdir -p "$folder/corpus"
gantry data build --tokenizer byte --output "$folder/corpus/train" "$@"
gantry data build --tokenizer byte --output "$folder/corpus/held_out" "$held_out"
cd "$folder"
gantry train "$here/pretrain_gpt2.yaml"
# The second run resumes where the first one ended, in another layout.
gantry train "$here/pretrain_gpt2.yaml" --set train.steps=24 --set parallel.tensor=1 --set parallel.pipeline=1 --set parallel.data=2
gantry checkpoint verify runs/pretrain_gpt2/checkpoints
gantry checkpoint export runs/pretrain_gpt2/checkpoints model
