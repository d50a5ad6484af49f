"""What the library costs, as ratios to the driver alone, side by side in one run."""
