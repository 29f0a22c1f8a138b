# SPDX-License-Identifier: Apache-2.0
"""A language model with tied weights (Press and Wolf 2017): an LSTM reads words and predicts the next one. The text is a file given as
argument, or sums written in words, which the model then continues. Also runs on PyTorch."""
import math, sys
import torch
from torch import nn

BATCH, LENGTH, SIZE, STEPS = 20, 30, 64, 300
NUMBERS = "zero one two three four five six seven eight".split()


class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.table = nn.Embedding(words, SIZE)
        self.net = nn.LSTM(SIZE, SIZE, num_layers=2, dropout=0.1)
        self.out = nn.Linear(SIZE, words)
        self.out.weight = self.table.weight
        nn.init.uniform_(self.table.weight, -0.1, 0.1)

    def forward(self, x, states=None):
        output, states = self.net(self.table(x), states)
        return self.out(output), states


def sums(count):
    pairs = torch.randint(0, 5, (count, 2)).tolist()
    return [word for a, b in pairs for word in (NUMBERS[a], "plus", NUMBERS[b], "is", NUMBERS[a + b], ".")]


torch.manual_seed(1)
text = open(sys.argv[1]).read().split() if len(sys.argv) > 1 else sums(2000)
words = sorted(set(text))
places = {word: i for i, word in enumerate(words)}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ids = torch.tensor([places[word] for word in text], device=device)
rows = ids[:len(ids) // BATCH * BATCH].view(BATCH, -1).t()  # one column per part of the text
model = Model(len(words)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

at, states = 0, None
for step in range(1, STEPS + 1):
    if at + LENGTH + 1 > len(rows):
        at, states = 0, None
    x, y = rows[at:at + LENGTH], rows[at + 1:at + LENGTH + 1]
    guess, states = model(x, states)
    states = tuple(state.detach() for state in states)  # carries the state to the next part, without its gradient
    loss = nn.functional.cross_entropy(guess.flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    at += LENGTH
    if step % 50 == 0: print(f"step {step:3}: perplexity {math.exp(loss.item()):.2f} of {len(words)} words")

model.eval()
given = len(sys.argv) > 1
before = [] if given else text[:6]  # context: in the text a sum follows another one
with torch.no_grad():
    for start in [text[:5]] if given else [["two", "plus", "three", "is"], ["four", "plus", "zero", "is"]]:
        guess, _ = model(torch.tensor([[places[word]] for word in before + start], device=device))
        print(" ".join(start), words[guess[-1, 0].argmax().item()])
