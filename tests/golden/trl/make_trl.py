"""Trains small Llama models with TRL, five steps for each case, and stores losses, gradient norms and rewards.

    python tests/golden/trl/make_trl.py

trl 1.16.0, transformers 5.24.0, peft 0.21.2, torch 2.13.0, float32. Each case of expected.json has the model and the
data here, the settings for `gantry train`, and the values of each step.
"""
import json
import os
import pathlib
import random
import tempfile

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
import transformers
import trl
from datasets import Dataset, disable_caching
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>", "<|end|>"]
WORDS = "one two three four five six red blue green house river tree bird fish runs sings sleeps near far the a".split()
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{% if m['role'] == 'assistant' %}{% generation %}"
            "{{ m['content'] }}<|end|>{% endgeneration %}{% else %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")

PAIRS = dict(data="pairs.jsonl", model="base", batch=4, lr=1e-3)
DPO = dict(PAIRS, trainer=(trl.DPOTrainer, trl.DPOConfig))
CPO = dict(PAIRS, trainer=(CPOTrainer, CPOConfig))
REWARD = dict(PAIRS, trainer=(trl.RewardTrainer, trl.RewardConfig))
# The arguments of TRL, and the section train.objective.
CASES = {
    "dpo": dict(DPO, arguments=dict(beta=0.1), objective=dict(name="dpo", beta=0.1)),
    "dpo_robust": dict(DPO, arguments=dict(beta=0.5, loss_type=["robust"], label_smoothing=0.2),
                       objective=dict(name="dpo", beta=0.5, loss_type="robust", label_smoothing=0.2)),
    "dpo_adapter": dict(DPO, lr=1e-2, adapter="adapter", arguments=dict(beta=0.1),
                        objective=dict(name="dpo", beta=0.1)),
    "ipo": dict(DPO, arguments=dict(beta=0.1, loss_type=["ipo"]), objective=dict(name="ipo", beta=0.1)),
    "simpo": dict(CPO, arguments=dict(beta=2.0, loss_type="simpo", cpo_alpha=0.5, simpo_gamma=0.5),
                  objective=dict(name="simpo", beta=2, gamma=0.5, cpo_alpha=0.5)),
    "cpo": dict(CPO, arguments=dict(beta=0.1, label_smoothing=0.1),
                objective=dict(name="cpo", beta=0.1, label_smoothing=0.1)),
    "orpo": dict(PAIRS, trainer=(ORPOTrainer, ORPOConfig), arguments=dict(beta=0.1),
                 objective=dict(name="orpo", beta=0.1)),
    "kto": dict(trainer=(trl.KTOTrainer, trl.KTOConfig), data="judged.jsonl", model="base", batch=12, lr=1e-3,
                arguments=dict(beta=0.3, desirable_weight=0.5, undesirable_weight=1.5),
                objective=dict(name="kto", beta=0.3, desirable_weight=0.5, undesirable_weight=1.5)),
    "reward": dict(REWARD, model="reward", arguments=dict(center_rewards_coefficient=0.01),
                   objective=dict(name="reward", center_rewards_coefficient=0.01)),
    "reward_padded_by_eos": dict(REWARD, model="reward", pad="</s>", arguments={}, objective=dict(name="reward")),
    "sft": dict(trainer=(trl.SFTTrainer, trl.SFTConfig), data="chats.jsonl", model="base", batch=4, lr=1e-3,
                sequence_length=100,
                arguments=dict(assistant_only_loss=True), objective=None),
    "distill": dict(trainer=(GKDTrainer, GKDConfig), data="questions.jsonl", model="base", batch=4, lr=1e-3,
                    sequence_length=64, teacher="teacher", arguments=dict(lmbda=0.0, beta=0.3, max_length=128),
                    objective=dict(name="distill", loss_type="jsd", beta=0.3)),
}


def words(least, most):
    return " ".join(random.choice(WORDS) for _ in range(random.randint(least, most)))


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [words(4, 30) + "." for _ in range(300)],
        trainers.BpeTrainer(vocab_size=288, special_tokens=SPECIAL, initial_alphabet=alphabet))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", 0)])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=128,
        additional_special_tokens=SPECIAL[3:])
    made.chat_template = TEMPLATE
    return made


def save_model(folder, kind, tokenizer, seed, layers=2, **more):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.15, bos_token_id=0, eos_token_id=1,
        pad_token_id=2, **more)
    kind(config).save_pretrained(HERE / folder)
    tokenizer.save_pretrained(HERE / folder)


def write_lines(name, lines):
    (HERE / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_files():
    random.seed(3)
    tokenizer = make_tokenizer()
    save_model("base", transformers.LlamaForCausalLM, tokenizer, 1)
    save_model("teacher", transformers.LlamaForCausalLM, tokenizer, 5, layers=1)
    save_model("reward", transformers.LlamaForSequenceClassification, tokenizer, 2, num_labels=1)
    pairs = [dict(prompt=words(2, 9) + random.choice(".?:"), chosen=" " + words(1, 10), rejected=" " + words(1, 10),
                  margin=round(random.random(), 3)) for _ in range(12)]
    write_lines("pairs.jsonl", pairs)
    good = [index % 3 != 1 for index in range(len(pairs))]
    write_lines("judged.jsonl", [dict(prompt=pair["prompt"], completion=pair["chosen" if label else "rejected"],
                                      label=label) for pair, label in zip(pairs, good)])
    # Texts of more than half of data.sequence_length, so that each row has one.
    turns = [[dict(role="user", content=words(9, 12)), dict(role="assistant", content=words(3, 6)),
              dict(role="user", content=words(9, 12)), dict(role="assistant", content=words(3, 6))] for _ in range(12)]
    write_lines("chats.jsonl", [dict(messages=messages) for messages in turns])
    write_lines("questions.jsonl", [dict(messages=messages[:2]) for messages in turns])
    base = transformers.LlamaForCausalLM.from_pretrained(HERE / "base")
    torch.manual_seed(11)
    adapted = get_peft_model(base, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"],
                                              task_type="CAUSAL_LM"))
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            value.data.normal_(0, 0.05)
    adapted.peft_config["default"].base_model_name_or_path = "base"
    adapted.save_pretrained(HERE / "adapter")
    (HERE / "adapter/README.md").unlink()


def train(name, case, folder):
    trainer, config = case["trainer"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(HERE / case["model"])
    is_reward = case["model"] == "reward"
    kind = transformers.AutoModelForSequenceClassification if is_reward else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(HERE / case["model"], dtype=torch.float32, **({"num_labels": 1} if is_reward else {}))
    more = {}
    if "adapter" in case:
        model = PeftModel.from_pretrained(model, HERE / case["adapter"], is_trainable=True)
    if "pad" in case:
        tokenizer.pad_token = case["pad"]
        model.config.pad_token_id = tokenizer.pad_token_id
    if "teacher" in case:
        more["teacher_model"] = transformers.AutoModelForCausalLM.from_pretrained(HERE / case["teacher"])
    lines = [json.loads(line) for line in open(HERE / case["data"])]
    arguments = config(
        output_dir=folder, per_device_train_batch_size=case["batch"], max_steps=5, learning_rate=case["lr"],
        lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.01, max_grad_norm=1.0, logging_steps=1,
        report_to=[], bf16=False, use_cpu=True, gradient_checkpointing=False, save_strategy="no", disable_tqdm=True,
        train_sampling_strategy="sequential", optim="adamw_torch", **case["arguments"])
    run = trainer(model=model, args=arguments, train_dataset=Dataset.from_list(lines), processing_class=tokenizer,
                  **more)
    run.train()
    kept = ("loss", "grad_norm", "kl", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")
    names = {"margin": "rewards/margins", "accuracy": "rewards/accuracies"} if is_reward else {}
    steps = [{names.get(key, key): value for key, value in log.items() if names.get(key, key) in kept}
             for log in run.state.log_history if "loss" in log]
    print(name, [step["loss"] for step in steps], flush=True)
    return steps


def main():
    transformers.logging.set_verbosity_error()
    disable_caching()
    torch.set_num_threads(1)
    make_files()
    expected = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            steps = train(name, case, folder)
        settings = {key: value for key, value in case.items() if key not in ("trainer", "arguments") and value}
        expected[name] = dict(settings, steps=steps)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
