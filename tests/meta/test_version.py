"""The package says which version it is, and looks that up only when it is asked."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import latewood


def test_the_version_is_that_of_the_package() -> None:
    assert latewood.__version__ == version("latewood")


def test_importing_the_package_does_not_look_it_up() -> None:
    script = "import sys, latewood; print('importlib.metadata' in sys.modules); latewood.__version__"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_no_other_name_is_made_up() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'versoin'"):
        _ = latewood.versoin
