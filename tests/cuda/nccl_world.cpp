// SPDX-License-Identifier: Apache-2.0
// A program that is linked with the real NCCL: it names its version, makes a unique id, and then a world of one device,
// as a switch over NCCL would. Where there is no device to make it on, that ends in one sentence with CUDA's error, and
// 1.
#include <algorithm>
#include <cstdio>
#include <exception>

#include <reshard/transport/nccl.hpp>
#include <reshard/transport/socket_meeting.hpp>

using namespace reshard;

int main() {
  try {
    int version = 0;
    ncclUniqueId id{};
    if (ncclGetVersion(&version) != ncclSuccess || ncclGetUniqueId(&id) != ncclSuccess)
      refuse("NCCL makes no unique id");
    const bool made = std::any_of(id.internal, id.internal + sizeof id.internal, [](char c) { return c != 0; });
    std::printf("NCCL %d.%d.%d, a unique id of %zu bytes%s\n", version / 10000, version / 100 % 100, version % 100,
                sizeof id.internal, made ? "" : ", all zero");
    std::fflush(stdout);
    listening_socket listening("127.0.0.1:0");
    const std::string address = "127.0.0.1:" + std::to_string(listening.port());
    socket_meeting meeting(0, {address}, std::move(listening), std::chrono::seconds(30));
    const nccl_endpoint here(meeting, 0);
    std::puts("a world of one device");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
