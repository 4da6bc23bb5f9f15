#!/usr/bin/env bash
# Every measurement that needs an NVIDIA GPU, in the order of its worth, on a machine with nothing but Python and torch.
#
#   benchmarks/on_gpu.sh [--all] [--out FOLDER] [--seconds N] [--only STAGE,STAGE,...] [--again] [--list] [--rehearse]
#
# One call ends by itself within --seconds (560). Call it again until it says that nothing is left: stages that ended
# well are not repeated (--again repeats them), and those that failed or had too little time come again behind all
# others. --all does so by itself, and says which file to send. Each row is written as soon as it is measured, and is in
# FOLDER/kept.jsonl seconds later, so that a kill at any moment costs one row; logs.tar.gz has the output, stages.tsv how
# each stage ended.
# `python benchmarks/gpu/collect.py FOLDER/kept.jsonl` makes the files of benchmarks/results from it.
# A machine that was given back between two calls has forgotten the first: put kept.jsonl and stages.tsv of it into the
# folder "earlier" beside the pack, and the next call goes on from there.
# What the machine lacks (ComfyUI, wheels) is carried in one file made by benchmarks/gpu/pack_for_gpu.py; without that file,
# the ComfyUI and the packages that are there are used. --rehearse goes through the stages in tiny sizes, without a GPU,
# and names those that it leaves out, with the reason.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

GIVEN=() ALL=""
for given in "$@"; do if [ "$given" = --all ]; then ALL=1; else GIVEN+=("$given"); fi; done
if [ -n "$ALL" ]; then
  for _ in $(seq 40); do
    exec 3>&1
    said="$(benchmarks/on_gpu.sh "${GIVEN[@]}" | tee /dev/fd/3)"
    [[ "$said" == *"stages are left"* ]] || break
  done
  echo "Done. Please attach this file to an issue: $(sed -n 's/^FILE //p' <<<"$said")"
  exit 0
fi

OUT="${OUT:-.cache/gpu/out}" SECONDS_IN_ALL=560 ONLY="" AGAIN="" LIST="" REHEARSE=""
while [ $# -gt 0 ]; do
  case "$1" in
    --out) OUT="$2"; shift ;;
    --seconds) SECONDS_IN_ALL="$2"; shift ;;
    --only) ONLY="$2"; shift ;;
    --again) AGAIN=1 ;;
    --list) LIST=1 ;;
    --rehearse) REHEARSE=1 ;;
    *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
PYTHON="${PYTHON:-python3}"
WORK="${PACELINE_GPU_WORK:-.cache/gpu}"
PACK="${PACELINE_GPU_PACK:-.cache/gpu_carry/pack.tar.xz}"
absolute() { case "$1" in /*) echo "$1" ;; *) echo "$(pwd)/$1" ;; esac; }
OUT="$(absolute "$OUT")" WORK="$(absolute "$WORK")"
# Kept here from call to call, and copied to OUT, which may be emptied between two calls.
KEPT="$WORK/run"
EARLIER="$(dirname "$PACK")/earlier"
FAILED=0 LEFT=0 TRIED=" " ROUND=""
MORE=75  # how a benchmark ends that had too little time for all that it was asked for

unpack() {
  [ -f "$PACK" ] || return 0
  local place="$WORK/pack"
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
}

save() {
  mkdir -p "$OUT"
  cp -f "$KEPT/kept.jsonl" "$KEPT/stages.tsv" "$OUT/" 2>/dev/null
  tar -C "$KEPT" -czf "$OUT/.logs.tar.gz" logs && mv "$OUT/.logs.tar.gz" "$OUT/logs.tar.gz"
}

# What is measured is in OUT while a stage runs: a machine that is taken away takes KEPT with it.
mirror() {
  while sleep 5 && kill -0 $$ 2>/dev/null; do
    cp -f "$KEPT/kept.jsonl" "$OUT/.kept" && mv "$OUT/.kept" "$OUT/kept.jsonl"
  done
}

# ended NAME STATUS: whether a stage has ended so, in this call or an earlier one; STATUS is a pattern.
ended() { grep -qP "^$1\t$2\t" "$KEPT/stages.tsv" 2>/dev/null; }

# stage NAME SECONDS COMMAND...: run a command for at most so long, keep its output and how it ended.
stage() {
  local name="$1" limit="$2" wanted="$2" status started left
  shift 2
  if [ -n "$ONLY" ] && [[ ",$ONLY," != *",$name,"* ]]; then return; fi
  if [ -n "$LIST" ]; then echo "$name: $*"; return; fi
  if [ -n "$AGAIN" ]; then
    :
  elif [ "$ROUND" = first ]; then
    if ended "$name" '\d+'; then return; fi
  elif ended "$name" 0 || ! ended "$name" '\d+' || [[ "$TRIED" == *" $name "* ]]; then
    return
  fi
  left=$((SECONDS_IN_ALL - SECONDS))
  # A stage that would be cut short in its first third waits for the next call, unless nothing else was done in this one.
  if [ "$left" -lt $((limit / 3)) ] && [ "$SECONDS" -gt 60 ]; then LEFT=$((LEFT + 1)); echo "-- $name: left for the next call"; return; fi
  if [ "$left" -lt 15 ]; then LEFT=$((LEFT + 1)); return; fi
  [ "$limit" -lt "$left" ] || limit="$left"
  echo "== $name (at most $limit s): $*"
  started=$SECONDS
  TRIED+="$name "
  PACELINE_STAGE="$name" PACELINE_KEEP="$KEPT/kept.jsonl" PACELINE_AGAIN="$AGAIN" STAGE_SECONDS="$limit" \
    timeout -k 5 "$limit" "$@" >"$KEPT/logs/$name.log" 2>&1
  status=$?
  if [ "$status" -eq "$MORE" ] || { [ "$status" -eq 124 ] && [ "$limit" -lt "$wanted" ]; }; then
    LEFT=$((LEFT + 1))
  elif [ "$status" -ne 0 ]; then
    FAILED=1
  fi
  printf '%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - started))" >>"$KEPT/stages.tsv"
  tail -n 25 "$KEPT/logs/$name.log"
  echo "-- $name: status $status after $((SECONDS - started)) s"
  save
}

# bench NAME SECONDS SCRIPT ARGUMENTS...: a benchmark; its rows are kept as they are measured.
bench() {
  local name="$1" limit="$2" script="$3"
  shift 3
  stage "$name" "$limit" "$PYTHON" "benchmarks/$script" "$@"
}

# left_out WHY NAME...: stages that a rehearsal leaves out.
left_out() {
  local why="$1" name
  shift
  [ "$ROUND" = first ] || return
  for name in "$@"; do echo "-- $name: not rehearsed, $why"; done
}

if [ -z "$LIST" ]; then
  mkdir -p "$KEPT/logs"
  if [ ! -f "$KEPT/stages.tsv" ] && [ -f "$EARLIER/stages.tsv" ]; then cp "$EARLIER/stages.tsv" "$EARLIER/kept.jsonl" "$KEPT/"; fi
  unpack
  export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TORCHINDUCTOR_CACHE_DIR="$WORK/inductor"
  # ComfyUI's own choice on NVIDIA; torch reads it when it starts.
  [ -n "$REHEARSE" ] || export PYTORCH_CUDA_ALLOC_CONF="${PYTORCH_CUDA_ALLOC_CONF:-backend:cudaMallocAsync}"
fi

ABOUT='import sys, torch; print(sys.version); print(torch.__version__, torch.version.cuda, torch.cuda.is_available() and torch.cuda.get_device_name())'

# Only the files that have such tests: others need packages that a bare machine lacks. Those of seconds first, and each
# in a process of its own: one that CUDA has failed in for good would fail in all other tests too.
mapfile -t GPU_TESTS < <(grep -rlE "mark\.gpu|pytestmark = .*gpu" tests --include="test_*.py" | sort -r)
EACH='status=0; for file; do "$0" -m pytest -v -p keep_tests -m gpu "$file" || status=$?; done; exit $status'
gpu_tests() { stage gpu_tests 480 env PYTHONPATH="benchmarks/gpu${PYTHONPATH:+:$PYTHONPATH}" bash -c "$EACH" "$PYTHON" "${GPU_TESTS[@]}"; }

ahead() { stage "$1" "$2" "$PYTHON" benchmarks/gpu/compile_ahead.py "${@:3}"; }

# On an H100 one row of SDXL that compiles takes two minutes and one of a VAE half a minute, so many compile side by side
# before they are measured (on 16 cores five in 260 seconds). From torch's cache on disk the first picture still takes one.
run_stages() {
  stage about 60 "$PYTHON" -c "$ABOUT"
  if [ -n "$REHEARSE" ]; then
    TINY=(--quick --latent 8 --steps 2 --rounds 1 --compiler eager)
    # Compiling takes the time here, so each thing that is compiled is so once.
    bench recipe_sdxl 300 stacks.py "${TINY[@]}" --layout tiny --dynamic-vram \
      --variants "+ Compile UNet and VAE" "ComfyUI's TorchCompileModel" "+ Compile UNet and VAE, Reuse Steps 0.05" "Apply ToMe quality"
    bench recipe_sd15_batch1 300 stacks.py "${TINY[@]}" --layout tiny --batch 2 --variants "Apply ToMe quality"
    bench z_image 300 stacks.py "${TINY[@]}" --layout z_image --cfg 1 --variants "+ Set Attention Processor"
    bench vae_sdxl 300 stacks.py "${TINY[@]}" --layout vae_sdxl --variants "VAE Precision: channels last"
    bench int8_layers 300 quantization.py --quick --only layers
    bench attention_backends 300 attention_backends.py --quick
    bench guard_time 300 guard_time.py --quick --milliseconds 5
    gpu_tests
    bench reuse_sdxl 300 step_reuse_time.py --quick --width 32 --only sdxl --solver dpmpp_2m --latents 16 --rounds 1
    bench diffusers_recipe 300 stacks.py "${TINY[@]}" --diffusers --variants "bf16, SDPA, compiled, int8"
    # Each variant takes two processes; between the two stages each way to compile is met once.
    bench first_image_sdxl 300 compile.py --quick --only sdxl --backend eager --variants "Compile UNet, Apply ToMe" \
      "ComfyUI's TorchCompileModel"
    bench first_image_z_image 300 compile.py --quick --only z_image --backend eager --variants "KJNodes, blocks only" \
      "diffusers, compile_repeated_blocks"
    ahead compile_ahead 300 --at-once 2 --rehearse vae_sdxl
    left_out "its weights take 10 GB in float32, and two of it are compared" vae_h3
    left_out "the program of vae_sdxl, with another network of 0.5 to 5 GB" vae_wan vae_wan_5b vae_ltx vae_hunyuan
    left_out "the program of a stage above, with another model or batch" recipe_sd15_batch8 flux compile_ahead_today \
      reuse_sd15 reuse_flux int8_unet
  else
    PICTURES=(--steps 30 --dynamic-vram)
    # 1. What users have, whole pictures: the server's memory management and allocator, first picture, then medians.
    ahead compile_ahead 420 sdxl sd15
    bench recipe_sdxl 540 stacks.py "${PICTURES[@]}" --layout sdxl
    # What the first picture costs, cold and kept: the blocks, the whole network, and what others do.
    bench first_image_sdxl 540 compile.py --only sdxl
    bench first_image_z_image 540 compile.py --only z_image
    bench recipe_sd15_batch1 400 stacks.py "${PICTURES[@]}" --layout sd15 --latent 64
    bench recipe_sd15_batch8 400 stacks.py "${PICTURES[@]}" --layout sd15 --latent 64 --batch 8
    # 2. What people of today wait for.
    ahead compile_ahead_today 420 sd15_batch8 z_image flux vae_sdxl vae_wan vae_wan_5b vae_ltx vae_hunyuan vae_h3
    bench z_image 300 stacks.py --dynamic-vram --layout z_image --steps 8 --cfg 1
    for vae in vae_sdxl vae_wan vae_wan_5b vae_ltx vae_hunyuan vae_h3; do
      bench "$vae" 100 stacks.py --dynamic-vram --layout "$vae" --rounds 3
    done
    bench flux 400 stacks.py --dynamic-vram --layout flux --steps 8 --cfg 1
    # 3. What decides defaults.
    bench int8_layers 100 quantization.py --only layers
    bench attention_backends 100 attention_backends.py
    bench guard_time 40 guard_time.py
    gpu_tests
    bench reuse_sdxl 100 step_reuse_time.py --only sdxl --solver dpmpp_2m
    bench diffusers_recipe 540 stacks.py --diffusers --steps 30
    # 4. The rest.
    bench reuse_sd15 120 step_reuse_time.py --only sd15 --beside easycache
    bench reuse_flux 200 step_reuse_time.py --only flux
    bench int8_unet 120 quantization.py --only unet
  fi
}

if [ -z "$LIST" ]; then
  mkdir -p "$OUT"
  mirror >/dev/null 2>&1 &
  MIRROR=$!
  trap 'kill $MIRROR 2>/dev/null' EXIT
fi
for ROUND in first again; do
  run_stages
  [ -z "$LIST$AGAIN" ] || break
done
if [ -z "$LIST" ]; then
  save
  column -t "$KEPT/stages.tsv" 2>/dev/null || cat "$KEPT/stages.tsv"
  echo "FILE $OUT/kept.jsonl"
  [ "$LEFT" -eq 0 ] || echo "$LEFT stages are left: call this again."
fi
exit "$FAILED"
