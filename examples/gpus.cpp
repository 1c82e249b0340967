// SPDX-License-Identifier: Apache-2.0
// A process per GPU moves its state over NCCL; what they agree on goes over sockets. Started alone it starts one
// process for each GPU here; on a cluster, or under mpirun, each process is started with its number, as
//   mpirun -n 4 build/examples/example_gpus
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <reshard/nccl.hpp>
#include <reshard/testing.hpp>

using namespace reshard;

namespace {

/// One side's arrays of a rank, in device memory whose granules come and go; a twin of them on the host fills them.
struct on_gpu {
  std::vector<rank_array> arrays;
  std::vector<bytes_t> offsets;
  bytes_t bytes = 0;
  rank_storage twin;
  std::optional<device_memory> range;
  binding tensors;

  on_gpu(const computed_holding& h, rank_t rank, device_granules& from, pages_are at_first) : twin(h, rank, "twin") {
    each_array(h, rank, {}, [&](const rank_array& a) {
      arrays.push_back(a), offsets.push_back(bytes);
      bytes += ceil_divide(a.bytes(), 512) * 512;
    });
    range.emplace(from, bytes);
    std::size_t next = 0;
    tensors = bind_rank(h, rank, "rank " + std::to_string(rank), [&](const rank_array& a) {
      return memory{range->data() + offsets[next++], a.bytes()};
    });
    tensors.own(*range, at_first);
  }
  /// Box by box, as both sides bind the same ones in the same order.
  void copy(cudaMemcpyKind kind) {
    tensors.seal();
    for (std::size_t i = 0; i < tensors.boxes().size(); ++i) {
      const bound_box &there = tensors.boxes()[i], &here = twin.tensors().boxes()[i];
      const bool up = kind == cudaMemcpyHostToDevice;
      detail::require_cuda(cudaMemcpy(up ? there.data : here.data, up ? here.data : there.data,
                                      static_cast<std::size_t>(there.bytes()), kind),
                           "copy a box");
    }
  }
};

/// What process `device` of `devices` does; its exit code.
int process(rank_t device, rank_t devices, int gpu, int port) {
  std::vector<std::string> addresses;
  for (rank_t d = 0; d < devices; ++d) addresses.push_back("127.0.0.1:" + std::to_string(port + d));
  const model m = make_transformer({.name = "small",
                                    .layers = 8,
                                    .hidden = 512,
                                    .heads = 8,
                                    .groups = 8,
                                    .head_dim = 64,
                                    .ffn = 1536,
                                    .vocabulary = 8192});
  const layout_switch change(space(m, config{dp{devices}}), space(m, config{dp{devices}, zero{1}}));
  try {
    detail::require_cuda(cudaSetDevice(gpu), "use a device");
    socket_meeting meeting(device, addresses, listening_socket(addresses[static_cast<std::size_t>(device)]),
                           std::chrono::seconds(60));
    nccl_endpoint here(meeting, gpu);
    device_granules pool(gpu);
    on_gpu before(change.from(), device, pool, pages_are::committed),
        after(change.to(), device, pool, pages_are::reserved);
    fill(before.twin.tensors(), change.from());
    before.copy(cudaMemcpyHostToDevice);
    const switch_report report = switch_state(change, before.tensors, after.tensors, here, {.budget = 1_GiB});
    after.copy(cudaMemcpyDeviceToHost);
    const comparison found = compare(after.twin.tensors(), change.to());
    std::printf("process %lld: %lld stages, %lld of %lld elements wrong\n", static_cast<long long>(device),
                static_cast<long long>(report.stages), static_cast<long long>(found.wrong),
                static_cast<long long>(found.elements));
    return found.wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "process %lld: %s\n", static_cast<long long>(device), e.what());
    return 1;
  }
}

int number_of(const char* name, int otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::atoi(given) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) return process(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[1]), std::atoi(argv[3]));
  const int mpi_rank = number_of("OMPI_COMM_WORLD_RANK", number_of("PMI_RANK", -1));
  if (mpi_rank >= 0)
    return process(mpi_rank, number_of("OMPI_COMM_WORLD_SIZE", number_of("PMI_SIZE", 1)),
                   number_of("OMPI_COMM_WORLD_LOCAL_RANK", mpi_rank), 29600);
  int gpus = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&gpus); code != cudaSuccess || gpus == 0) {
    std::printf("no GPU here: %s\n", code != cudaSuccess ? cudaGetErrorString(code) : "CUDA finds none");
    return 77;
  }
  for (int gpu = 0; gpu < gpus; ++gpu)  // each begins anew, before it touches CUDA
    if (::fork() == 0) {
      ::execl(argv[0], argv[0], std::to_string(gpu).c_str(), std::to_string(gpus).c_str(), "29600", nullptr);
      ::_exit(127);
    }
  bool good = true;
  for (int status = 0; ::wait(&status) > 0;) good = good && status == 0;
  return good ? 0 : 1;
}
