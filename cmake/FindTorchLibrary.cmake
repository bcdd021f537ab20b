# Gives the target pipedream_torch: libtorch as found through CMAKE_PREFIX_PATH, Debian's by default.
#
# Where both Debian's libtorch and another one (pip's, say) are present, find_package(Torch) finds the other one's configuration and
# still picks Debian's libtorch.so, because that lies on the default library path. So the libraries are named by their full paths here.
find_package(Torch REQUIRED)
get_filename_component(pipedream_torch_root "${Torch_DIR}/../../.." ABSOLUTE)
message(STATUS "libtorch ${Torch_VERSION} at ${pipedream_torch_root}")

add_library(pipedream_torch INTERFACE)
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
