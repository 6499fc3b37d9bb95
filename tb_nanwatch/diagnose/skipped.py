"""Bad steps whose update dynamic loss scaling left out, so that they did no harm."""

from __future__ import annotations

import numpy as np

from tb_nanwatch.diagnose.rules.falling_loss_scale import TAG
from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.run import Run


def by_loss_scaling(run: Run, incident: Incident) -> bool:
    """Whether the scale fell at every bad step of an incident that is over and reached no weight."""
    if incident.last_step is None or any(reached.kind == "weight" for reached in incident.spread):
        return False
    values = run.series(TAG, "value", max(incident.first_step - 1, 0), incident.last_step).values
    return int(np.sum(np.diff(values) < 0)) >= incident.bad_steps
