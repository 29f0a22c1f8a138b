# SPDX-License-Identifier: Apache-2.0
"""Resumes training from a checkpoint of the model, optimiser, schedule, averaged weights and random state: the losses are those
of an uninterrupted run. Run it with `python3 -m phlox examples/checkpoint.py`."""
import os
import tempfile

import torch
from torch import nn


class Training:
    def __init__(self):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=40)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)
        self.parts = {name: getattr(self, name) for name in ("model", "optimizer", "schedule", "average")}

    def step(self):
        x = torch.randn(32, 4)
        loss = nn.functional.mse_loss(self.model(x), x.square().sum(1, keepdim=True))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.average.update_parameters(self.model)
        return loss.item()

    def save(self, path):
        torch.save({"random": torch.get_rng_state(), **{name: part.state_dict() for name, part in self.parts.items()}}, path)

    def load(self, path):
        saved = torch.load(path)
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["random"])


whole = Training()
losses = [whole.step() for _ in range(40)]
with tempfile.TemporaryDirectory() as folder:
    first, second = Training(), Training()
    again = [first.step() for _ in range(20)]
    first.save(os.path.join(folder, "half.pt"))
    second.load(os.path.join(folder, "half.pt"))
    again += [second.step() for _ in range(20)]
print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}; the same after a stop: {losses == again}, and the averages:",
      all(torch.equal(a, b) for a, b in zip(whole.average.parameters(), second.average.parameters())))
