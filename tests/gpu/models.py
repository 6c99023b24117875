# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Models of the shapes that people train, without torchvision or transformers, and data that they can learn."""
import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inp, mid, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inp, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(),
            nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(),
            nn.Conv2d(mid, out, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if inp == out and stride == 1 else nn.Sequential(
            nn.Conv2d(inp, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class SpatialMean(nn.Module):
    """Average over the image; the backward pass of nn.AdaptiveAvgPool2d is not deterministic on a GPU."""

    def forward(self, x):
        return x.mean((2, 3))


def resnet(blocks, width, classes):
    """ResNet with bottlenecks: blocks (3, 4, 6, 3), width 64, 1000 classes is ResNet-50, 25.6 million parameters."""
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inp = width
    for i, n in enumerate(blocks):
        mid = width << i
        for j in range(n):
            layers.append(Bottleneck(inp, mid, mid * 4, 2 if j == 0 and i > 0 else 1))
            inp = mid * 4
    return nn.Sequential(*layers, SpatialMean(), nn.Linear(inp, classes))


class Bert(nn.Module):
    """Encoder with a head over the vocabulary: 24 layers of 1024 is BERT-Large, 334 million parameters (the head is the
    embedding, as in BERT)."""

    def __init__(self, vocab, hidden, layers, heads, positions):
        super().__init__()
        self.word = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(positions, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(hidden, heads, hidden * 4, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(layers))
        nn.init.normal_(self.word.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)

    def forward(self, tokens):
        x = self.norm(self.word(tokens) + self.position.weight[:tokens.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return nn.functional.linear(x, self.word.weight)


def _images(classes, batch, side):
    def make(generator):
        return torch.randn(batch, 3, side, side, generator=generator), \
            torch.randint(classes, (batch,), generator=generator)

    def loss(out, want):
        return nn.functional.cross_entropy(out, want)
    return make, loss


def _tokens(vocab, batch, length):
    def make(generator):
        t = torch.randint(vocab, (batch, length), generator=generator)
        return t, t

    def loss(out, want):
        return nn.functional.cross_entropy(out.flatten(0, 1), want.flatten())
    return make, loss


def build(name):
    """(model, make_batch(generator), loss(out, want), learning rate) on the CPU, the same on every rank."""
    torch.manual_seed(7)
    if name == "resnet50":
        return (resnet((3, 4, 6, 3), 64, 1000), *_images(1000, 16, 96), 0.02)
    if name == "bert-large":
        return (Bert(30522, 1024, 24, 16, 512), *_tokens(30522, 4, 64), 0.02)
    if name == "tiny-resnet":
        return (resnet((1, 1), 8, 10), *_images(10, 8, 32), 0.05)
    if name == "tiny-bert":
        return (Bert(500, 32, 2, 4, 32), *_tokens(500, 4, 16), 0.5)
    raise ValueError(f"no model {name}")


NAMES = ["resnet50", "bert-large", "tiny-resnet", "tiny-bert"]


def batches(make, rank, count, device):
    """`count` batches of a rank's own, the same in every run; training walks over them again and again."""
    g = torch.Generator().manual_seed(1000 + rank)
    return [tuple(t.to(device) for t in make(g)) for _ in range(count)]
