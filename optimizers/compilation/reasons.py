"""Why torch compiled a function again, or could not compile it, in words, and what helps."""

from __future__ import annotations

import re
import sys
import traceback

from ..core.errors import PacelineError, error_line

_LONGEST = 200
"""Characters of torch's own line that are shown."""

_PATCHES = (
    r"patches|wrappers|attention_override|block_modifiers|callbacks|___check_obj_id|___check_function|___check_type_id"
)

_CHANGES = (
    (r"size mismatch at index 0\b|\.size\(\)\[0\]", "another batch size"),
    (r"size mismatch|\.size\(\)\[", "another size"),
    (r"dtype mismatch", "another dtype"),
    (r"^weights ==", "weights of another dtype, size or device (a LoRA, a precision)"),
    (r"stride mismatch|rank mismatch", "another layout of a tensor"),
    (r"cond_or_uncond", "other passes at once (positive prompt, negative prompt, or both together)"),
    (r"weight_function|bias_function|_parameters\['\w+'\]\.patches", "a LoRA that is applied while the layer computes"),
    (r"device", "another device"),
    (r"token_merging.\]\.record\.full", "full and reduced attention in the same step, or no longer (Apply ToMe)"),
    (r"__closure__|cell_contents|__defaults__|__code__", "another function, or other captured values,"),
    (_PATCHES, "other patches or options"),
    (r"transformer_options|args\[\d+\]\['", "other patches or options"),
    (r"_modules\[|_buffers\[|_parameters\[", "another layer, or other code,"),
    (r"grad_mode|inference_mode|autocast|torch_function|deterministic", "another mode of torch"),
)
"""What the guards of compiled code that did not hold say, and what has changed then; most specific first."""

_LAYER = re.compile(r"_modules\['([^']*)'\]")
_OPTION = re.compile(r"(?:args\[\d+\]|kwargs\['transformer_options'\])\['([^']*)'\]")


def explain_recompile(reason: str) -> str:
    """Return the change in words, with torch's own line behind.

    ``reason`` is e.g. ``0/0: tensor 'args[0]' size mismatch at index 2. expected 8, actual 16``.
    """
    line = re.sub(r"^\d+/\d+: |\s+# .*", "", reason.partition("\n")[0])
    words = next((words for pattern, words in _CHANGES if re.search(pattern, line)), "")
    words = words or "another value in the call or the network"
    if layers := _LAYER.findall(line):
        words = f"{words.rstrip(',')} in the layer {'.'.join(layers)}"
    elif (option := _OPTION.search(line)) is not None and "patches or options" in words:
        words = f"{words} ({option[1]})"
    return f"{words.rstrip(',')} (torch: {line[:_LONGEST]})"


class CompilationFailed(PacelineError):
    """Compiling failed and the settings ask to stop then."""


class CompilationCancelled(PacelineError):
    """The user cancelled while something was compiled."""


# (pattern of the error's type or text, what went wrong, remedy, another remedy on Windows), most specific first.
_KNOWN: tuple[tuple[str, str, str, str], ...] = (
    (
        r"InvalidCxxCompiler|No working C\+\+ compiler|Compiler: cl is not found",
        "there is no C++ compiler, which torch needs to build code for the CPU",
        "Install one with your system's package manager (Debian, Ubuntu: apt install g++; macOS: "
        "xcode-select --install), or name it in the environment variable CXX.",
        "Install Microsoft's Build Tools for Visual Studio with 'Desktop development with C++' and start "
        "ComfyUI from its developer prompt.",
    ),
    (
        "TritonMissing|Cannot find a working triton|No module named 'triton'",
        "there is no Triton, which torch needs to build code for the GPU",
        "Install the triton that belongs to your torch build; the CUDA and ROCm wheels of torch bring it along.",
        "Run: python -m pip install triton-windows (in ComfyUI's own Python, in the version that fits your torch).",
    ),
    (
        r"Python\.h|python3-dev",
        "Python's header files, which Triton needs, are missing",
        "Install them (Debian, Ubuntu: apt install python3-dev).",
        "The embedded Python comes without them: copy the folders include and libs from a full Python of "
        "the same version into it.",
    ),
    (
        "OutOfMemoryError|out of memory|can't allocate memory|MemoryError",
        "memory ran out while compiling",
        "Make the image or the batch smaller for the first run, or choose mode default.",
        "",
    ),
    (
        "checkPoolLiveAllocations|cudaMallocAsync does not yet support",
        "torch's CUDA graphs do not work with the memory allocator cudaMallocAsync that ComfyUI chooses",
        "Start ComfyUI with --disable-cuda-malloc, or choose another mode.",
        "",
    ),
    (
        r"CppCompileError|C\+\+ compile error",
        "the C++ compiler rejected the generated code",
        "Update the C++ compiler; if that does not help, report it together with the log.",
        "",
    ),
    (
        "WinError 206|No such file or directory: '[^']{250,}",  # Windows says so where a path is too long
        "a path is longer than the 260 characters that Windows allows",
        "Switch long paths on in Windows (LongPathsEnabled, then restart), or set the environment variable "
        "TORCHINDUCTOR_CACHE_DIR to a short path, e.g. C:\\ti.",
        "",
    ),
)


_DAMAGED = ("file too short", "invalid ELF header", "is not a valid Win32 application", "not a mach-o file")
"""What the system says of a library that was cut off, because no space was left or the power went."""


def is_damage(error: BaseException) -> bool:
    """Return whether a compilation failed because a library that was kept from an earlier start is damaged."""
    return any(words in str(one) for one in _chain(error) for words in _DAMAGED)


def explain(error: BaseException) -> tuple[str, str]:
    """Return why compilation failed and what helps; causes are read too, as torch wraps what its backends raise."""
    chain = _chain(error)
    text = "\n".join(f"{type(one).__name__}: {one}" for one in chain)
    for pattern, problem, remedy, on_windows in _KNOWN:
        if re.search(pattern, text):
            return problem, (sys.platform == "win32" and on_windows) or remedy
    names = {type(one).__name__ for one in chain}
    if names & {"Unsupported", "UserError"}:
        return (
            f"torch cannot trace this model as one graph ({error_line(error)})",
            "Switch fullgraph off: what cannot be traced then runs as before, between the compiled parts.",
        )
    return f"torch could not compile it ({error_line(chain[-1], named=True)})", "The log has the details."


def free_frames(error: BaseException) -> None:
    """Free the tensors that the frames of an error, and of what led to it, still hold."""
    following: BaseException | None = error
    while following is not None:
        traceback.clear_frames(following.__traceback__)
        following = following.__context__


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.append(following)
        following = getattr(following, "inner_exception", None) or following.__cause__ or following.__context__
    return chain
