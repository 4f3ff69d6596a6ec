"""Conversations with images as the processors of transformers write them.

    python tests/golden/images/make_chats.py

Made with Hugging Face transformers 5.24.0 (the processors on Pillow), Pillow 13.0.0 and torch 2.13.0. Each directory of
chats/ has a tokenizer of bytes, a chat template in the form of the family's own, the settings of the image processor of
processors/, config.json of a tiny model, and the result of processor.apply_chat_template(tokenize=True): ids.json and
expected.safetensors with the entries of the images. qwen2_5_vl also has weights. conversation.json has the messages.
The classes of Pixtral's and Qwen2.5-VL's processors need a torchvision that fits torch, which their results do not use.
"""
import json
import pathlib
import shutil

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

HERE = pathlib.Path(__file__).parent
CHATS = HERE / "chats"
FAMILIES = HERE.parent / "families"
CONVERSATION = [
    {"role": "user", "content": [{"type": "image", "path": "../rgb.png"}, {"type": "text", "text": "What is this?"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A card."}]},
    {"role": "user", "content": [{"type": "text", "text": "And these: "}, {"type": "image", "path": "../processors/tall.png"},
                                 {"type": "image", "path": "../processors/wide.png"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A door and a band."}]},
]
# Special tokens after the 256 bytes, and the templates.
GEMMA3 = (["<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>",
           "<image_soft_token>"],
          "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
          "{% if m.content is string %}{{ m.content | trim }}{% else %}{% for part in m.content %}"
          "{% if part.type == 'image' %}<start_of_image>{% else %}{{ part.text | trim }}{% endif %}{% endfor %}{% endif %}"
          "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")
LLAVA = (["<s>", "</s>", "<pad>", "<image>"],
         "{% for m in messages %}{{ m.role | upper }}: "
         "{% for part in m.content | selectattr('type', 'equalto', 'image') %}<image>\n{% endfor %}"
         "{% for part in m.content | selectattr('type', 'equalto', 'text') %}{{ part.text }}"
         "{{ eos_token if m.role == 'assistant' else ' ' }}{% endfor %}{% endfor %}"
         "{% if add_generation_prompt %}ASSISTANT: {% endif %}")
MISTRAL3 = (["<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"],
            "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]{% if m.content is string %}{{ m.content }}"
            "{% else %}{% for part in m.content %}{% if part.type == 'image' %}[IMG]{% else %}{{ part.text }}{% endif %}"
            "{% endfor %}{% endif %}[/INST]{% else %}"
            "{{ m.content if m.content is string else m.content[0].text }}{{ eos_token }}{% endif %}{% endfor %}")
QWEN2_5_VL = (["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
               "<|video_pad|>"],
              "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
              "{% for part in m.content %}{% if part.type == 'image' or 'image' in part %}"
              "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}"
              "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def ids_of(special):
    return {text: 256 + index for index, text in enumerate(special)}


def tokenizer(special, folder, **named):
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(special)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(made.to_str())) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | named) + "\n")
    extra = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    if "<start_of_image>" in special:
        named = named | {"extra_special_tokens": extra}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **named)


def gemma3(folder, keys):
    special, template = GEMMA3
    text = tokenizer(special, folder, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
    return transformers.Gemma3Processor(image_processor=Gemma3ImageProcessorPil(**keys), tokenizer=text,
                                        chat_template=template, image_seq_length=4)


def llava(folder, keys):
    special, template = LLAVA
    text = tokenizer(special, folder, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    return transformers.LlavaProcessor(image_processor=CLIPImageProcessorPil(**keys), tokenizer=text, patch_size=4,
                                       vision_feature_select_strategy="default", num_additional_image_tokens=1,
                                       chat_template=template)


def mistral3(folder, keys):
    special, template = MISTRAL3
    text = tokenizer(special, folder, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    return transformers.PixtralProcessor(image_processor=PixtralImageProcessorPil(**keys), tokenizer=text, patch_size=4,
                                         spatial_merge_size=2, chat_template=template)


def qwen2_5_vl(folder, keys):
    special, template = QWEN2_5_VL
    text = tokenizer(special, folder, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    return transformers.Qwen2_5_VLProcessor(image_processor=Qwen2VLImageProcessorPil(**keys), tokenizer=text,
                                            video_processor=transformers.Qwen2VLVideoProcessor(), chat_template=template)


def config(name, folder):
    """The sizes of the models in families/, with the vocabulary of the tokenizer."""
    if name == "llava":
        special = ids_of(LLAVA[0])
        vision = {"model_type": "clip_vision_model", "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 3,
                  "num_attention_heads": 2, "image_size": 12, "patch_size": 4, "num_channels": 3}
        text = {"model_type": "llama", "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
        keys = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": text,
                "vision_config": vision, "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
                "projector_hidden_act": "gelu", "image_token_index": special["<image>"], "tie_word_embeddings": False}
    else:
        keys = json.loads((FAMILIES / f"{name}_image" / "config.json").read_text())
        special = ids_of({"gemma3": GEMMA3, "mistral3": MISTRAL3, "qwen2_5_vl": QWEN2_5_VL}[name][0])
        keys |= {"gemma3": {"boi_token_index": special.get("<start_of_image>"), "eoi_token_index": special.get("<end_of_image>"),
                            "image_token_index": special.get("<image_soft_token>")},
                 "mistral3": {"image_token_index": special.get("[IMG]")},
                 "qwen2_5_vl": {"image_token_id": special.get("<|image_pad|>"), "video_token_id": special.get("<|video_pad|>"),
                                "vision_start_token_id": special.get("<|vision_start|>"),
                                "vision_end_token_id": special.get("<|vision_end|>")}}[name]
        keys["text_config"]["max_position_embeddings"] = 512
    keys["text_config"]["vocab_size"] = 256 + len(special)
    (folder / "config.json").write_text(json.dumps(keys, indent=2) + "\n")


def weights(folder):
    keys = transformers.AutoConfig.from_pretrained(folder)
    keys.text_config.initializer_range = keys.vision_config.initializer_range = 0.2
    torch.manual_seed(5)
    model = transformers.Qwen2_5_VLForConditionalGeneration(keys)
    model.save_pretrained(folder / "saved")
    shutil.move(folder / "saved" / "model.safetensors", folder / "model.safetensors")
    shutil.rmtree(folder / "saved")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids_of(QWEN2_5_VL[0])["<|im_end|>"]}) + "\n")


def main():
    torch.set_num_threads(1)
    (CHATS / "conversation.json").write_text(json.dumps({"messages": CONVERSATION}) + "\n")
    local = [{"role": m["role"], "content": [part | ({"path": str(CHATS / part["path"])} if "path" in part else {})
                                              for part in m["content"]]} for m in CONVERSATION]
    for make in (gemma3, llava, mistral3, qwen2_5_vl):
        name, folder = make.__name__, CHATS / make.__name__
        folder.mkdir(exist_ok=True)
        shutil.copy(HERE / "processors" / name / "preprocessor_config.json", folder)
        keys = json.loads((folder / "preprocessor_config.json").read_text())
        config(name, folder)
        processor = make(folder, keys)
        (folder / "chat_template.jinja").write_text(processor.chat_template)
        made = {}
        for prompts, messages in ((False, local), (True, local[:3])):
            made[prompts] = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt",
                                                          add_generation_prompt=prompts)
        (folder / "ids.json").write_text(json.dumps(
            {"full": made[False]["input_ids"][0].tolist(), "prompt": made[True]["input_ids"][0].tolist()}) + "\n")
        entries = {key: value.contiguous() for key, value in made[False].items()
                   if key in ("pixel_values", "image_sizes", "image_grid_thw")}
        save_file(entries, folder / "expected.safetensors")
    weights(CHATS / "qwen2_5_vl")


main()
