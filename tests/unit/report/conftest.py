import sys
from pathlib import Path

# the generator of made-up screenings lives beside the tests of analysis
sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
