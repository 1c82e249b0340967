# SPDX-License-Identifier: Apache-2.0
# reshard_find_nccl(TARGET): TARGET links the CUDA runtime and NCCL, where both are found; else TARGET does not come to be.
# CUDA is looked for in CUDAToolkit_ROOT, $CUDA_PATH and /usr/local/cuda; NCCL in NCCL_ROOT, there, in the system and, as the wheel
# nvidia-nccl-cu13 has it (libnccl.so.2 and no libnccl.so), beside a toolkit of wheels.
function(reshard_find_nccl target)
  set(cuda ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_PATH} $ENV{CUDA_HOME} /usr/local/cuda)
  set(nccl ${NCCL_ROOT} $ENV{NCCL_ROOT} ${cuda})
  foreach(root IN LISTS cuda)
    list(APPEND nccl ${root}/../nccl)
  endforeach()
  find_path(RESHARD_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${cuda} PATH_SUFFIXES include)
  find_library(RESHARD_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 HINTS ${cuda} PATH_SUFFIXES lib64 lib)
  find_path(RESHARD_NCCL_INCLUDE_DIR nccl.h HINTS ${nccl} PATH_SUFFIXES include)
  find_library(RESHARD_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${nccl} PATH_SUFFIXES lib64 lib)
  mark_as_advanced(RESHARD_CUDA_INCLUDE_DIR RESHARD_CUDART_LIBRARY RESHARD_NCCL_INCLUDE_DIR RESHARD_NCCL_LIBRARY)
  if(RESHARD_CUDA_INCLUDE_DIR AND RESHARD_CUDART_LIBRARY AND RESHARD_NCCL_INCLUDE_DIR AND RESHARD_NCCL_LIBRARY)
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${RESHARD_CUDA_INCLUDE_DIR};${RESHARD_NCCL_INCLUDE_DIR}"
      INTERFACE_LINK_LIBRARIES "${RESHARD_CUDART_LIBRARY};${RESHARD_NCCL_LIBRARY}")
  endif()
endfunction()
