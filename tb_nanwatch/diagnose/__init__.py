"""From what was read to what it means: pure functions, no files, no clock, no printing.

`examine` is the way in. A rule for findings is one file in `rules`, a rule for causes one file in `causes`.
"""

from tb_nanwatch.diagnose.postmortem import PostMortem, examine

__all__ = ["PostMortem", "examine"]
