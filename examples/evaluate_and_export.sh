#!/bin/sh
# Compares the held-out loss of a checkpoint with the loss of the exported Hugging Face directory, in another layout:
# evaluate_and_export.sh DIRECTORY   (written by pretrain_gpt2.sh; needs gantry and the example evaluate in PATH)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
evaluate "$here/pretrain_gpt2.yaml" evaluation.batches=0 >of_checkpoint
rm -rf exported
gantry checkpoint export runs/pretrain_gpt2/checkpoints exported
evaluate "$here/pretrain_gpt2.yaml" evaluation.batches=0 model.path=exported parallel.tensor=1 parallel.pipeline=4 >of_export
cat of_checkpoint of_export
cmp of_checkpoint of_export
