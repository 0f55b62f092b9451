"""The number of cores that a process may use, by affinity and by the quota of a container."""

import os

import pytest

from unmask.runtime import cores

V1 = {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "400000 100000\n"}, 4),
        (V1, 2),
        (V1 | {"cpu/cpu.cfs_quota_us": "-1\n"}, None),
    ],
)
@pytest.mark.parametrize("affinity", [True, False])  # macOS has none
def test_a_quota_limits_cores_and_threads(files, quota, affinity, tmp_path, monkeypatch):
    (tmp_path / "cpu").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(cores, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    if affinity:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 6}, raising=False)
    else:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores.cpu_quota() == quota
    assert cores.available_cores() == min(quota or 3, 3)

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    cores.limit_threads()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    del os.environ["OMP_NUM_THREADS"]
    cores.limit_threads()
    assert os.environ.get("OMP_NUM_THREADS") == (quota and str(min(quota, 3)))
