# SPDX-License-Identifier: Apache-2.0
"""Actor-critic (Konda and Tsitsiklis 1999) balancing a pole on a cart: the actor outputs the probability of each push, the critic the expected return.
Run it with `python3 -m phlox examples/actor_critic.py`; also runs on PyTorch."""
import math, torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

LIMIT, EPISODES = 200, 100


class Cart:
    """The cart-pole system of Barto, Sutton and Anderson (1983), in steps of 20 ms."""

    def start(self):
        self.state, self.steps = (torch.rand(4) * 0.1 - 0.05).tolist(), 0
        return torch.tensor(self.state)

    def push(self, right):
        x, speed, angle, turn = self.state
        swing = ((10 if right else -10) + 0.05 * turn ** 2 * math.sin(angle)) / 1.1
        bend = (9.8 * math.sin(angle) - math.cos(angle) * swing) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        pull = swing - 0.05 * bend * math.cos(angle) / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend]
        self.steps += 1
        return torch.tensor(self.state), abs(x) > 2.4 or abs(angle) > 0.21 or self.steps == LIMIT


class Player(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.actor, self.critic = nn.Linear(4, 128), nn.Linear(128, 2), nn.Linear(128, 1)

    def forward(self, state):
        x = F.relu(self.base(state))
        return Categorical(logits=self.actor(x)), self.critic(x).squeeze(-1)


torch.manual_seed(1)
cart, player = Cart(), Player()
optimizer = torch.optim.Adam(player.parameters(), lr=0.01)
mean = 20.0
for episode in range(1, EPISODES + 1):
    state, done, chances, values = cart.start(), False, [], []
    while not done:
        chance, value = player(state)
        action = chance.sample()
        state, done = cart.push(action.item())
        chances.append(chance.log_prob(action))
        values.append(value)
    returns = torch.tensor([(1 - 0.99 ** left) / (1 - 0.99) for left in range(len(values), 0, -1)])  # discounted rewards of 1
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    values = torch.stack(values)
    loss = -(torch.stack(chances) * (returns - values.detach())).sum() + F.smooth_l1_loss(values, returns, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean += (len(values) - mean) * 0.05
    if episode % 20 == 0 or episode <= 5: print(f"episode {episode}: {len(values)} steps, {mean:.1f} on average, loss {loss.item():.3f}")
