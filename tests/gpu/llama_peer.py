"""Llama in PyTorch as one writes it by hand, for ./dev gpu bench to stand beside."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Adapted(nn.Module):
    """A linear layer without bias whose frozen bfloat16 weight has a trained low-rank addition, as PEFT's LoRA layers."""

    def __init__(self, inputs, outputs, rank):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, dtype=torch.bfloat16) * 0.02, requires_grad=False)
        self.a, self.b = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return F.linear(x, self.weight) + 2 * self.b(self.a(x))


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        hidden, self.heads, self.key_heads = size["hidden"], size["heads"], size["key_heads"]
        head = self.head = hidden // self.heads
        rank = size.get("lora")
        linear = lambda inputs, outputs: Adapted(inputs, outputs, rank) if rank else nn.Linear(inputs, outputs, bias=False)
        self.before_attention, self.before_mlp = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q, self.kv, self.o = linear(hidden, hidden), linear(hidden, 2 * self.key_heads * head), linear(hidden, hidden)
        self.gate, self.up, self.down = linear(hidden, size["inner"]), linear(hidden, size["inner"]), linear(size["inner"], hidden)

    def attend(self, x, cosine, sine):
        b, s, _ = x.shape
        heads = lambda t, n: t.view(b, s, n, self.head).transpose(1, 2)
        k, v = self.kv(x).chunk(2, -1)
        q, k, v = heads(self.q(x), self.heads), heads(k, self.key_heads), heads(v, self.key_heads)
        y = F.scaled_dot_product_attention(rotate(q, cosine, sine), rotate(k, cosine, sine), v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, s, -1))

    def forward(self, x, cosine, sine):
        x = x + self.attend(self.before_attention(x), cosine, sine)
        y = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(size["vocabulary"], size["hidden"])
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size["layers"]))
        self.norm = nn.RMSNorm(size["hidden"], eps=1e-5)
        self.head = nn.Linear(size["hidden"], size["vocabulary"], bias=False)
        if "lora" in size:  # all but the adapters is frozen, in bfloat16
            self.embedding.bfloat16(), self.head.bfloat16()
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(name.endswith((".a.weight", ".b.weight")))
        else:
            self.head.weight = self.embedding.weight
        half = size["hidden"] // size["heads"] // 2
        angles = torch.outer(torch.arange(size["sequence"]), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        cosine, sine = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return self.head(self.norm(x))
