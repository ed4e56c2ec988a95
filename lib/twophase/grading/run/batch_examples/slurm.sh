#!/bin/bash
# Grade a class as a Slurm array of 16 tasks, each a part of its own:
#
#     sbatch --array=1-16 slurm.sh
#     twophase merge grades-part-*/ --out grades/        # when all have ended
#
# A task that was cut short is submitted again by its number (sbatch --array=5 slurm.sh) and goes on where it was.
# A task that ends with 1 has graded everything; some files could not be read. Only 2, 3 and signals are failures.
#SBATCH --job-name=grade
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=02:00:00
#SBATCH --output=grade-%a.log

set -u
twophase grade submissions/ --out "grades-part-${SLURM_ARRAY_TASK_ID}" \
    --shard "${SLURM_ARRAY_TASK_ID}/${SLURM_ARRAY_TASK_COUNT:-16}" \
    --release release/ --secret course.secret --workers "${SLURM_CPUS_PER_TASK:-4}"
code=$?
if [ "$code" -eq 1 ]; then exit 0; fi
exit "$code"
