"""What a sweep has kept in the file of its study."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def kept(user: Path, study: str = "a study") -> list[dict[str, Any]]:
    """Return the results of a study by ComfyUI's user folder, oldest first; empty where there is no study."""
    import optuna

    file = user / "__paceline" / "sweeps" / "sweeps.db"
    file.parent.mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{file}"
    if study not in optuna.get_all_study_names(storage):
        return []
    trials = optuna.load_study(study_name=study, storage=storage).trials
    return [trial.user_attrs["paceline_result"] for trial in trials if "paceline_result" in trial.user_attrs]
