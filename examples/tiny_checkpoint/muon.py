"""Muon: momentum whose matrix updates are orthogonalised (Keller Jordan, 2024), for matrices and stacks of matrices."""

from collections import defaultdict

import torch

# Quintic Newton-Schulz coefficients from Muon's description: they push singular values near 1 within five rounds.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


def orthogonalised(updates: torch.Tensor) -> torch.Tensor:
    """Nearly orthogonal matrices with the singular vectors of updates [N, rows, columns]."""
    tall = updates.shape[1] > updates.shape[2]
    x = updates.transpose(1, 2) if tall else updates
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_ROUNDS):
        gram = x @ x.transpose(1, 2)
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """Parameters are [rows, columns] or [N, rows, columns]; matrices of one shape are orthogonalised together."""

    def __init__(self, params: list[torch.nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[tuple(parameter.shape[-2:])].append(parameter)
            for (rows, columns), parameters in by_shape.items():
                updates = torch.cat([self._momentum(p, group["momentum"]).view(-1, rows, columns) for p in parameters])
                updates = orthogonalised(updates) * max(1.0, rows / columns) ** 0.5
                counts = [p.numel() // (rows * columns) for p in parameters]
                for parameter, update in zip(parameters, updates.split(counts), strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update.view(parameter.shape), alpha=-group["lr"])

    def _momentum(self, parameter: torch.nn.Parameter, momentum: float) -> torch.Tensor:
        state = self.state[parameter]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(parameter)
        state["velocity"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["velocity"], momentum)
