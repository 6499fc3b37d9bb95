"""Behind `nanwatch try`: what to try, programs side by side, and what came of it."""
