"""The parts of scripts/gpu_check. Read in this order: stages.py, what is done; build.py and cases.py, how a failure
costs only what it touches; outbox.py, what is kept."""
