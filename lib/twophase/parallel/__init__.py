"""The transformer on several ranks: the same tokens as one process, every byte counted.

- `comm`: `Comm` between processes, by torch.distributed. `run`: starts ranks on this machine and
  ends them together, for notebooks and tests. `generate`: the program that torchrun starts.
- `weights`: where a rank reads its boxes of the parameters. `shares`: which boxes, where heads,
  columns and rows are divided.
- Layouts, by name in `layouts`: `tensor`; `cut_caches` (its cache cut by sequence or position);
  `sequence` (prefill by positions); `stationary` (matrices cut both ways); `pipeline`; `dealt`
  (replicas, experts); `combined` (a pipeline or replicas of tensor-parallel groups).
- `formulas`: what each sends in a pass.
- `price`: what the messages of each layout take here and on other links.
"""
