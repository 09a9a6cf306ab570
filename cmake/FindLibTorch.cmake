# LibTorch out of the PyPI wheel that launch/setup.sh unpacked into the STARLING_DEPS folder.
# Target LibTorch::torch: headers as SYSTEM, libtorch_cpu and libc10 only. The wheel's own CMake
# package insists on a CUDA toolkit, and its include folder carries other versions of protobuf and
# fmt: give this target to torch layers only.
set(_deps "$ENV{STARLING_DEPS}")
if(NOT _deps)
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(_deps "$ENV{XDG_CACHE_HOME}/starling")
  else()
    set(_deps "$ENV{HOME}/.cache/starling")
  endif()
endif()
set(STARLING_TORCH_VERSION 2.11.0)
set(LibTorch_ROOT "${_deps}/torch-${STARLING_TORCH_VERSION}" CACHE PATH "Unpacked torch wheel")

find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h
  PATHS ${LibTorch_ROOT}/torch/include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS ${LibTorch_ROOT}/torch/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS ${LibTorch_ROOT}/torch/lib NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run ./launch/setup.sh, which unpacks it into ${LibTorch_ROOT}")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION ${LibTorch_C10_LIBRARY})
  add_library(LibTorch::torch_cpu SHARED IMPORTED)
  set_target_properties(LibTorch::torch_cpu PROPERTIES IMPORTED_LOCATION ${LibTorch_CPU_LIBRARY})
  add_library(LibTorch::torch INTERFACE IMPORTED)
  target_include_directories(LibTorch::torch SYSTEM INTERFACE
    ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(LibTorch::torch INTERFACE LibTorch::torch_cpu LibTorch::c10)
  # libtorch_cpu.so needs the CUDA runtime and CUPTI libraries of two further wheels, which it
  # looks for beside itself (../../nvidia/cu13/lib).
  target_link_options(LibTorch::torch INTERFACE
    "LINKER:-rpath,${LibTorch_ROOT}/torch/lib" "LINKER:--unresolved-symbols=ignore-in-shared-libs")
endif()
