#!/usr/bin/env bash
# Every measurement that needs an NVIDIA GPU, most important first, on a machine with nothing but Python 3.12 and torch.
#
#   benchmarks/on_gpu.sh [--out FOLDER] [--only STAGE,STAGE,...] [--list] [--rehearse]
#
# What the machine lacks (ComfyUI, wheels) is carried in one file made by benchmarks/pack_for_gpu.py; without that file,
# the ComfyUI and the packages that are there are used. No stage takes longer than ten minutes, and each is saved as it
# ends: FOLDER/results.tar.gz holds the JSON and the log of all stages so far, and stages.tsv how they ended. Run it again
# with --only for what is left. --rehearse goes through all stages in tiny sizes, also without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

OUT="${OUT:-.cache/gpu/out}" ONLY="" LIST="" REHEARSE=""
while [ $# -gt 0 ]; do
  case "$1" in
    --out) OUT="$2"; shift ;;
    --only) ONLY="$2"; shift ;;
    --list) LIST=1 ;;
    --rehearse) REHEARSE=1 ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
case "$OUT" in /*) ;; *) OUT="$(pwd)/$OUT" ;; esac # a relative one is below the repository
PYTHON="${PYTHON:-python3}"
WORK="${PACELINE_GPU_WORK:-.cache/gpu}"
PACK="${PACELINE_GPU_PACK:-.cache/gpu_carry/pack.tar.xz}"
case "$WORK" in /*) ;; *) WORK="$(pwd)/$WORK" ;; esac
RESULTS="$OUT/results"
FAILED=0

unpack() {
  [ -f "$PACK" ] || return 0
  local place
  place="$WORK/pack"
  if [ ! -f "$place/complete" ]; then
    mkdir -p "$place"
    "$PYTHON" - "$PACK" "$place" <<'PY' || { echo "The pack $PACK cannot be unpacked." >&2; exit 1; }
import sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    archive.extractall(sys.argv[2], filter="data")
PY
    touch "$place/complete"
  fi
  export PYTHONPATH="$place/site${PYTHONPATH:+:$PYTHONPATH}" COMFYUI_PATH="$place/comfyui"
  EMOJI="$place/emoji"
}

# stage NAME SECONDS COMMAND...: run a command with a time limit, keep its output, and put everything into the archive.
stage() {
  local name="$1" seconds="$2" status started
  shift 2
  if [ -n "$ONLY" ] && [[ ",$ONLY," != *",$name,"* ]]; then return; fi
  if [ -n "$LIST" ]; then echo "$name: $*"; return; fi
  echo "== $name: $*"
  started=$SECONDS
  timeout -k 10 "$seconds" "$@" >"$RESULTS/$name.log" 2>&1
  status=$?
  [ "$status" -eq 0 ] || FAILED=1
  printf '%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - started))" >>"$RESULTS/stages.tsv"
  tail -n 25 "$RESULTS/$name.log"
  echo "-- $name: status $status after $((SECONDS - started)) s"
  tar -C "$OUT" -czf "$OUT/.results.tar.gz" results && mv "$OUT/.results.tar.gz" "$OUT/results.tar.gz"
}

# bench NAME SECONDS SCRIPT ARGUMENTS...: a benchmark, with its JSON beside its log.
bench() {
  local name="$1" seconds="$2" script="$3"
  shift 3
  stage "$name" "$seconds" "$PYTHON" "benchmarks/$script" --json "$RESULTS/$name.json" "$@"
}

EMOJI=""
if [ -z "$LIST" ]; then
  mkdir -p "$RESULTS"
  unpack
  export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TORCHINDUCTOR_CACHE_DIR="$WORK/inductor"
fi

ABOUT='import sys, torch; print(sys.version); print(torch.__version__, torch.version.cuda, torch.cuda.is_available() and torch.cuda.get_device_name())'
stage about 120 "$PYTHON" -c "$ABOUT"

# Only the files that have such tests: others need packages that a bare machine lacks.
mapfile -t GPU_TESTS < <(grep -rlE "mark\.gpu|pytestmark = .*gpu" tests --include="test_*.py" | sort)

if [ -n "$REHEARSE" ]; then
  TINY=(--quick --layout tiny --latent 8 --steps 2 --rounds 1 --compiler eager)
  # Compiling takes the time here, so each thing that is compiled is so once.
  bench sdxl_1024 500 stacks.py "${TINY[@]}" \
    --variants "Compile UNet" "ComfyUI TorchCompileModel" "Compile UNet + Apply ToMe balanced" "Apply ToMe fast"
  bench sd15_512_batch1 500 stacks.py "${TINY[@]}" --batch 2 --variants "Apply ToMe fast"
  bench sdxl_1024_recipe 500 stacks.py "${TINY[@]}" --group recipe \
    --variants "bf16, plain attention" "bf16, SDPA" "bf16, SDPA, compiled, fused, int8"
  stage sdxl_1024_diffusers 500 "$PYTHON" . recipe --pipeline sdxl --width 32 --size 64 --steps 1 --rounds 1 --quiet \
    --rows fp32,int8 --compile-backend eager --compile-mode default --output "$RESULTS/sdxl_1024_diffusers"
  TOKENS=(--quick --only sd15 --latents 16 --steps 1 --rounds 1 --variants "merge 0.5" balanced)
  bench token_reduction_sd15 500 token_reduction.py "${TOKENS[@]}"
  bench attention_backends 500 attention_backends.py --quick
  bench int8_kernels 500 quantization.py --quick --only layers
  bench int8_unet 500 quantization.py --quick --only unet
  bench memory_frontier 500 memory_frontier.py --quick --only plain --variants "merge 0.5" --latents 32
  stage gpu_tests 500 "$PYTHON" -m pytest -q -m gpu "${GPU_TESTS[@]}"
  stage emoji64 500 "$PYTHON" tools/train_emoji.py --geometry sd15 --size 32 --channels 32 --mult 1,1 --batch 2 --steps 2 \
    --drawn 1 --save-every 0 \
    --precision bf16 --processes 1 --placeholders --work "$WORK/rehearsal" --out "$OUT/emoji64.safetensors"
else
  bench sdxl_1024 590 stacks.py --layout sdxl --latent 128 --steps 30
  for batch in 1 4 16; do
    bench "sd15_512_batch$batch" 500 stacks.py --layout sd15 --latent 64 --steps 30 --batch "$batch" --seconds 300
  done
  bench sdxl_1024_recipe 590 stacks.py --layout sdxl --latent 128 --steps 30 --group recipe
  # The same recipe in diffusers; it keeps its rows one by one.
  stage sdxl_1024_diffusers 590 "$PYTHON" . recipe --pipeline sdxl --size 1024 --steps 30 --rounds 3 --quiet \
    --output "$RESULTS/sdxl_1024_diffusers"
  bench token_reduction_sd15 590 token_reduction.py --only sd15
  bench token_reduction_sdxl 590 token_reduction.py --only sdxl
  bench attention_backends 590 attention_backends.py
  # Its third part, quality, needs another model, and no GPU.
  bench int8_kernels 590 quantization.py --only layers
  bench int8_unet 590 quantization.py --only unet
  bench memory_frontier 590 memory_frontier.py
  stage gpu_tests 590 "$PYTHON" -m pytest -q -m gpu "${GPU_TESTS[@]}"
  stage emoji64 590 "$PYTHON" tools/train_emoji.py --geometry sd15 --seconds 480 --work "${EMOJI:-.cache/emoji}" \
    --out "$OUT/emoji64.safetensors"
fi
# In parts, as files that come back from such a machine can be limited in size: cat emoji64.part-* >emoji64.safetensors
if [ -z "$LIST" ] && [ -f "$OUT/emoji64.safetensors" ]; then
  split -b 15M "$OUT/emoji64.safetensors" "$OUT/emoji64.part-" && rm "$OUT/emoji64.safetensors"
fi
[ -n "$LIST" ] || column -t "$RESULTS/stages.tsv" 2>/dev/null || cat "$RESULTS/stages.tsv"
exit "$FAILED"
