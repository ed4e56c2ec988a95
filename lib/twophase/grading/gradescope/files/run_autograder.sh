#!/usr/bin/env bash
# Gradescope runs this for every submission and then reads results/results.json. That file is valid from the first line on: it has no
# score until grading is over, and Gradescope reports a result without a score as a failure of the autograder, never as a zero.
set -u
root="${TWOPHASE_AUTOGRADER_ROOT:-/autograder}"
python="${TWOPHASE_AUTOGRADER_PYTHON:-/opt/twophase/venv/bin/python}"
source="$root/source"

umask 022
mkdir -p "$root/results"
cp "$source/provisional.json" "$root/results/results.json.new"
mv "$root/results/results.json.new" "$root/results/results.json"

# submissions run as another user and may import the library; what they may not read is closed to that user too, besides the jail
chmod a+rx "$root" "$source" 2>/dev/null
chmod -R a+rX "$source/lib" 2>/dev/null
chmod -R go-rwx "$source/private" "$source/lib/twophase/checks" "$root/submission" 2>/dev/null
chmod go-rwx "$root/submission_metadata.json" 2>/dev/null

cd "$source" || exit 1
export PYTHONPATH="$source/lib" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# a little less than Gradescope's own limit, after which it would write a zero
timeout --kill-after=5 @SECONDS@ "$python" -P -m twophase.grading.gradescope.autograder "$root"
