# SPDX-License-Identifier: Apache-2.0
"""Training from a torch DataLoader whose workers are forked or spawned after CUDA is up: workers must stay workers."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        return torch.full((256,), float(i % 7))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--start", choices=("fork", "spawn"), required=True)
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true")
    a = p.parse_args()
    torch.manual_seed(20261120)
    model = torch.nn.Linear(256, 1).to(a.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    on_gpu = a.device == "cuda"
    loader = DataLoader(Rows(), batch_size=16, num_workers=3, multiprocessing_context=a.start, pin_memory=on_gpu)
    for epoch in range(2):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch.to(a.device, non_blocking=True)).square().mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total:.9g}", flush=True)


if __name__ == "__main__":
    main()
