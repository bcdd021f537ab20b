# Gives the target pipedream_torch: libtorch as found through CMAKE_PREFIX_PATH, Debian's by default.
#
# Where both Debian's libtorch and another one (pip's, say) are present, find_package(Torch) finds the other one's configuration and
# still picks Debian's libtorch.so, because that lies on the default library path. So the libraries are named by their full paths here.
#
# A wheel of PyTorch built for CUDA has a configuration that wants nvcc. Its headers and libraries are enough to compile and to run on CPUs, so a
# wheel named in CMAKE_PREFIX_PATH (`python3 -c "import torch; print(torch.utils.cmake_prefix_path)"`) is used without its configuration.
foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
  foreach(root "${prefix}" "${prefix}/../..")
    if(NOT pipedream_torch_wheel AND EXISTS "${root}/lib/libtorch_cpu.so" AND EXISTS "${root}/include/torch/csrc/api/include/torch/version.h")
      get_filename_component(pipedream_torch_wheel "${root}" ABSOLUTE)
    endif()
  endforeach()
endforeach()

add_library(pipedream_torch INTERFACE)
if(pipedream_torch_wheel)
  message(STATUS "libtorch at ${pipedream_torch_wheel}")
  set(pipedream_torch_root ${pipedream_torch_wheel})
  set(TORCH_INCLUDE_DIRS ${pipedream_torch_root}/include ${pipedream_torch_root}/include/torch/csrc/api/include)
  # The wheel brings headers of a newer fmt, which come before the system's: what includes torch takes fmt from those alone.
  target_compile_definitions(pipedream_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO FMT_HEADER_ONLY=1)
  # The wheel's libraries find those of CUDA by their own run paths, the linker does not.
  target_link_options(pipedream_torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
else()
  find_package(Torch REQUIRED)
  get_filename_component(pipedream_torch_root "${Torch_DIR}/../../.." ABSOLUTE)
  message(STATUS "libtorch ${Torch_VERSION} at ${pipedream_torch_root}")
endif()
target_include_directories(pipedream_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
separate_arguments(pipedream_torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(pipedream_torch INTERFACE ${pipedream_torch_flags})
if(EXISTS ${pipedream_torch_root}/lib/libtorch.so)
  foreach(lib torch torch_cpu c10)
    target_link_libraries(pipedream_torch INTERFACE ${pipedream_torch_root}/lib/lib${lib}.so)
  endforeach()
  foreach(lib torch_cuda c10_cuda)
    if(EXISTS ${pipedream_torch_root}/lib/lib${lib}.so)
      target_link_libraries(pipedream_torch INTERFACE ${pipedream_torch_root}/lib/lib${lib}.so)
    endif()
  endforeach()
  list(APPEND CMAKE_BUILD_RPATH ${pipedream_torch_root}/lib)
else()
  target_link_libraries(pipedream_torch INTERFACE torch)
endif()
target_link_libraries(pipedream_torch INTERFACE Threads::Threads)
install(TARGETS pipedream_torch EXPORT pipedream-targets)
