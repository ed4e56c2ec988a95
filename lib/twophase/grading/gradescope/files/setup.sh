#!/usr/bin/env bash
# Gradescope runs this once, as root and with a network, when it builds the image from the uploaded zip.
#
# The grader wants the Python that it was tried with (@PYTHON@) and Gradescope's Ubuntu 22.04 has 3.10. uv brings a self-contained
# build of it, the same on every base image; a package archive such as deadsnakes has it for some Ubuntu releases, as long as those
# are supported. All goes below /opt/twophase, which other users can read: submissions run as one of them.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
opt="${TWOPHASE_AUTOGRADER_OPT:-/opt/twophase}"
export DEBIAN_FRONTEND=noninteractive
export UV_PYTHON_INSTALL_DIR="$opt/python" UV_CACHE_DIR="$opt/cache" UV_LINK_MODE=copy UV_NO_CONFIG=1

again() { # a download that fails is tried three times
  local n
  for n in 1 2 3; do
    "$@" && return 0
    echo "attempt $n of 3 failed: $*" >&2
    sleep $((5 * n))
  done
  return 1
}

umask 022
mkdir -p "$opt"
again apt-get update
again apt-get install -y --no-install-recommends ca-certificates python3 python3-venv
python3 -m venv "$opt/uv" # its own environment: newer systems refuse to install beside their own packages
again "$opt/uv/bin/python" -m pip install --disable-pip-version-check --no-cache-dir 'uv>=0.9,<1'

uv="$opt/uv/bin/uv"
again "$uv" python install '@PYTHON@'
"$uv" venv --python-preference only-managed --python '@PYTHON@' "$opt/venv"
python="$opt/venv/bin/python"
# torch from its CPU index: the one of the ordinary index brings gigabytes of CUDA
again "$uv" pip install --python "$python" --no-deps --index-url https://download.pytorch.org/whl/cpu '@TORCH@'
# all that the grader needs, each at the version it was tried with, so there is nothing to resolve
again "$uv" pip install --python "$python" --no-deps -r "$here/requirements.txt"
rm -rf "$opt/cache"

# compiled once, here, and not for every submission
"$python" -m compileall -q "$here/lib" "$opt/venv/lib" || true
PYTHONPATH="$here/lib" "$python" -P -m twophase.grading.gradescope.autograder --probe
