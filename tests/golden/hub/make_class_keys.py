"""Writes class_keys.json: the keys that transformers' configuration class of each family has, less those of every class.

    python tests/golden/hub/make_class_keys.py

transformers 5.23.0. The values are the classes' defaults; "map" is attribute_map, further spellings of keys.
"""
import dataclasses
import json
import pathlib

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FAMILIES = """apertus bamba bart bert bloom clip codegen cohere cohere2 deepseek_v2 deepseek_v3 distilbert dots1 electra ernie4_5
ernie4_5_moe exaone4 falcon falcon_h1 falcon_mamba gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text glm4 glm4_moe glm4v gpt2
gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid helium hunyuan_v1_dense jamba kimi_k2
kimi_linear lfm2 llama llama4 llama4_text llava mamba mamba2 minimax minimax_m2 mistral mistral3 mixtral modernbert
mt5 nemotron nemotron_h nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe opt pegasus phi phi3 qwen2 qwen2_5_vl
qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl
recurrent_gemma roberta seed_oss siglip smollm3 stablelm starcoder2 t5 umt5 vit whisper xlm-roberta""".split()
CLASSES_OF = {"kimi_k2": "deepseek_v3"}  # transformers has no class of that name


def without_infinity(value):
    """As transformers writes it to config.json."""
    if isinstance(value, (list, tuple)):
        return [without_infinity(each) for each in value]
    return {"__float__": "Infinity"} if value == float("inf") else value


def keys_of(model_type):
    base = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    cls = CONFIG_MAPPING[CLASSES_OF.get(model_type, model_type)]
    keys = {}
    for field in dataclasses.fields(cls):
        if field.name in base:
            continue
        keys[field.name] = None if field.default is dataclasses.MISSING else without_infinity(field.default)
    return {"keys": keys, "map": cls.attribute_map}


def main():
    here = pathlib.Path(__file__).parent
    table = {model_type: keys_of(model_type) for model_type in FAMILIES}
    lines = [f"{json.dumps(name)}: {json.dumps(entry, default=list)}" for name, entry in table.items()]
    (here / "class_keys.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
