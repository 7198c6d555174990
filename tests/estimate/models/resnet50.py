"""ResNet-50, written as torchvision's runs it, on random pictures of 224 x 224; SGD with momentum."""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """Narrow, look around, widen, and add what came in."""

    def __init__(self, wide, narrow, stride, is_first):
        super().__init__()
        self.conv1 = nn.Conv2d(wide, narrow, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(narrow)
        self.conv2 = nn.Conv2d(narrow, narrow, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(narrow)
        self.conv3 = nn.Conv2d(narrow, 4 * narrow, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * narrow)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if is_first:
            self.down = nn.Sequential(nn.Conv2d(wide, 4 * narrow, 1, stride, bias=False), nn.BatchNorm2d(4 * narrow))

    def forward(self, x):
        """One block."""
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        out = self.relu(out)
        out = self.conv3(out)
        out = self.bn3(out)
        if self.down is not None:
            identity = self.down(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """Pictures in, a score for each of 1,000 kinds out."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, 1)
        wide = 64
        for number, (narrow, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
            blocks = []
            for at in range(count):
                blocks.append(Bottleneck(wide, narrow, 2 if number > 1 and at == 0 else 1, at == 0))
                wide = 4 * narrow
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.mean = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(wide, 1_000)

    def forward(self, x):
        """The scores."""
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        x = self.pool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        x = self.mean(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


def build(device, batch=32):
    """The model, its optimizer and one step."""
    model = ResNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        pictures, kinds = torch.randn(batch, 3, 224, 224, device=device), torch.randint(1_000, (batch,), device=device)
        loss = functional.cross_entropy(model(pictures), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step
