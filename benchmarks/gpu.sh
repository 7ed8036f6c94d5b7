#!/usr/bin/env bash
# Everything that needs a CUDA device, in one go and under 8 minutes: tests, then benchmarks.
#   benchmarks/gpu.sh [OUT]      results as JSON and logs in OUT (default runs/gpu)
# The last line says what failed, if anything; the exit code is 0 only if nothing did.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

OUT=${1:-runs/gpu}
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
mkdir -p "$OUT"
failed=()

# step NAME SECONDS COMMAND...: run with a time limit, log to OUT/NAME.log, go on after a failure.
step() {
  local name=$1 limit=$2
  shift 2
  echo "== $name (at most $limit s): $*"
  timeout "$limit" "$@" 2>&1 | tee "$OUT/$name.log" || failed+=("$name")
}

nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv 2>&1 | tee "$OUT/gpu.csv"
step doctor 60 "$PYTHON" -m agentgym_lite.cli doctor
step tests 180 "$PYTHON" -m pytest tests/gpu -m gpu
for benchmark in benchmarks/rollout_*.py; do # those that can run on a device of one's choice
  if "$PYTHON" "$benchmark" --help | grep -q -- --device; then
    name=$(basename "$benchmark" .py)
    step "$name" 180 "$PYTHON" "$benchmark" --device cuda --out "$OUT/$name.json"
  fi
done

step plan_memory 120 "$PYTHON" benchmarks/plan_memory.py --device cuda --only 1.5b_lora 1.5b_full --out "$OUT/plan_memory.json"

if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all done; results in $OUT"
