// SPDX-License-Identifier: Apache-2.0
// Device memory by granules, what CUDA says of a pointer, and lanes of copies, on the emulation of CUDA. Handles that
// are left, memory that is touched where none is, and what is unmapped under a reader end the program.
#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <reshard/cuda/device_lane.hpp>
#include <reshard/cuda/device_memory.hpp>
#include <reshard/cuda/locate_memory.hpp>

#include "../support/emulated_copies.hpp"

using namespace reshard;

namespace {

constexpr bytes_t granule = device_granule_bytes;

/// What something says that can't be done.
template <typename Something>
std::string refused(Something&& something) {
  try {
    something();
    return "accepted";
  } catch (const std::exception& e) {
    return e.what();
  }
}
void write(std::byte* at, unsigned char value, bytes_t bytes) {
  const std::vector<unsigned char> all(static_cast<std::size_t>(bytes), value);
  emulation::poke(at, all.data(), all.size());
}
long launches() {
  for (const emulation::call_count& c : emulation::counts())
    if (c.function == "launch") return c.calls;
  return 0;
}
unsigned char read(const std::byte* at) {
  unsigned char value = 0;
  emulation::peek(&value, at, 1);
  return value;
}

}  // namespace

TEST_CASE("granules come and go one by one; addresses and what others hold stay") {
  device_granules pool(0);
  device_memory range(pool, 5 * granule - 100);
  CHECK(range.bytes() == 5 * granule);
  CHECK(range.mapped_bytes() == 0);
  CHECK(emulation::used_bytes() == 0);
  CHECK(range.place() == memory_place{memory_place::kind::device, 0});
  const memory_block block = range.block();
  CHECK(block.come == granules_come::when_taken);
  CHECK(block.granules == 5);
  {
    device_memory there(pool, granule);  // what is mapped from the start may be written before anybody takes it
    CHECK(there.block(pages_are::committed).come == granules_come::when_written);
    CHECK(there.mapped_bytes() == granule);
  }
  block.commit({1, 4});
  CHECK(range.mapped_bytes() == 3 * granule);
  CHECK(emulation::used_bytes() == static_cast<std::size_t>(3 * granule));
  write(block.begin + granule, 7, 3 * granule);
  block.commit({0, 5});  // those that are there stay
  CHECK(range.mapped_bytes() == 5 * granule);
  CHECK(read(block.begin + 2 * granule) == 7);
  block.release({2, 3});
  CHECK(range.mapped_bytes() == 4 * granule);
  CHECK(emulation::used_bytes() == static_cast<std::size_t>(4 * granule));
  CHECK(read(block.begin + 4 * granule - 1) == 7);
  block.release({0, 5});  // one of them has gone before
  CHECK(range.mapped_bytes() == 0);
  CHECK(pool.bytes() == 0);
  CHECK(refused([&] { block.take(block.begin + 4 * granule, 2 * granule); }) ==
        "reshard: device_memory: " + std::to_string(2 * granule) + " bytes from byte " + std::to_string(4 * granule) +
            " on are no granules of 5");
}

TEST_CASE("what one range gives back serves another before the device is asked; the rest is the device's again") {
  device_granules pool(1, 2 * granule);
  device_memory source(pool, 12 * granule), target(pool, 8 * granule);
  const memory_block from = source.block(pages_are::committed);
  CHECK(source.mapped_bytes() == 12 * granule);
  const memory_block into = target.block();
  CHECK(from.granules == 6);
  CHECK(into.granules == 4);
  from.release({0, 3});
  CHECK(pool.spare_bytes() == 6 * granule);  // for the target
  CHECK(pool.bytes() == 12 * granule);
  into.commit({0, 2});
  CHECK(pool.spare_bytes() == 2 * granule);
  CHECK(pool.bytes() == 12 * granule);
  from.release({3, 6});
  CHECK(pool.spare_bytes() == 4 * granule);  // two more are wanted, and no third
  CHECK(pool.bytes() == 8 * granule);
  into.commit({2, 4});
  CHECK(pool.spare_bytes() == 0);
  CHECK(pool.bytes() == 8 * granule);
  CHECK(target.mapped_bytes() == 8 * granule);
  std::optional<device_memory> late(std::in_place, pool, 2 * granule);
  static_cast<void>(late->block());
  into.release({0, 2});
  CHECK(pool.spare_bytes() == 2 * granule);
  late.reset();  // who wanted it is gone
  CHECK(pool.spare_bytes() == 0);
  CHECK(pool.bytes() == 4 * granule);
}

TEST_CASE("nothing is unmapped before its readers have ended, nor for ever waited for") {
  device_granules pool(0, granule, std::chrono::milliseconds(300));
  device_memory range(pool, granule);
  const memory_block block = range.block(pages_are::committed);
  write(block.begin, 3, 16);
  {
    cuda_stream reader;
    cuda_event end;
    emulation::enqueue(reader.get(), [at = block.begin] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      CHECK(*emulation::readable(at, 1) == std::byte{3});
    });
    end.record(reader);
    range.read_until(std::move(end));
    block.release({0, 1});
    CHECK(reader.idle());
    CHECK(range.mapped_bytes() == 0);
  }
  block.take(block.begin, granule);
  cuda_stream slow;
  cuda_event never;
  std::atomic<bool> go = false;
  emulation::enqueue(slow.get(), [&go] {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  never.record(slow);
  range.read_until(std::move(never));
  const std::string sentence = refused([&] { block.release({0, 1}); });
  go = true;
  CHECK(sentence == "reshard: device_memory: who reads a range of " + std::to_string(granule) +
                        " bytes has not ended for 300 ms; nothing of it was unmapped");
  CHECK(range.mapped_bytes() == granule);
  while (!slow.idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("what the driver refuses is a sentence, and leaves what was there") {
  CHECK(refused([] { detail::require_cuda(cudaErrorInvalidValue, "copy a word"); }) ==
        std::string("reshard: CUDA could not copy a word: ") + ::cudaGetErrorString(cudaErrorInvalidValue) +
            " (cudaErrorInvalidValue)");
  device_granules pool(0);
  device_memory range(pool, 4 * granule);
  const memory_block block = range.block();
  for (const char* const function : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    emulation::fail(function, std::string(function) == "cuMemSetAccess" ? 1 : 3);
    const std::string sentence = refused([&] { block.commit({0, 4}); });
    CAPTURE(function);
    const std::string name = function;
    CHECK(sentence == "reshard: CUDA's driver could not " +
                          std::string(name == "cuMemCreate" ? "make a granule of memory: out of memory (CUresult 2)"
                                      : name == "cuMemMap"  ? "map a granule of memory: out of memory (CUresult 2)"
                                                            : "let a device reach granules of memory: an error of the "
                                                              "emulation (CUresult 999)"));
    CHECK(range.mapped_bytes() == 0);
  }
  emulation::fail("cuMemMap", 4), emulation::fail("cuMemUnmap", 1);  // what was mapped goes, and why it goes is said
  CHECK(refused([&] { block.commit({0, 4}); }).find("could not map a granule of memory") != std::string::npos);
  CHECK(range.mapped_bytes() == 0);
  block.commit({0, 4});
  emulation::fail("cuMemUnmap", 2);
  CHECK(refused([&] { block.release({0, 4}); }).find("could not unmap") != std::string::npos);
  CHECK(range.mapped_bytes() == 2 * granule);
  CHECK(refused([&] { device_granules odd(0, granule + 4096); }) ==
        "reshard: granules of 2101248 bytes; device 0 maps memory by multiples of 2097152");
  CHECK(refused([&] { device_memory none(pool, 0); }) ==
        "reshard: device_memory: cannot reserve 0 bytes; 1 is the least");
}

TEST_CASE("CUDA is asked where arrays lie: of which kind, on which device, and how long") {
  const tensor_box w{0, {0, 0, 0}, {{{0, 1}, {0, 64}, {0, 64}}}}, v{0, {0, 1, 0}, {{{0, 1}, {0, 64}, {0, 64}}}};
  constexpr bytes_t bytes = 64 * 64 * 2;
  const auto located = [&](void* first, void* second, bytes_t of_second = 8192) {
    binding b("rank 3");
    b.add(w, memory{static_cast<std::byte*>(first), bytes});
    if (second != nullptr) {
      bound_box other{v, static_cast<std::byte*>(second), {64 * 64, of_second / 128, 1}, 2};
      b.add(other);
    }
    b.seal();
    std::string sentence = refused([&] { locate_memory(b); });
    return sentence == "accepted" ? b.place().text() : sentence;
  };
  std::vector<std::byte> host(bytes);
  void *on_0 = nullptr, *on_1 = nullptr, *pinned = nullptr;
  detail::require_cuda(cudaSetDevice(1), "use a device");
  detail::require_cuda(cudaMalloc(&on_1, bytes), "allocate");
  detail::require_cuda(cudaSetDevice(0), "use a device");
  detail::require_cuda(cudaMalloc(&on_0, 2 * bytes), "allocate");
  detail::require_cuda(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), "pin");
  CHECK(located(host.data(), nullptr) == "host memory");
  CHECK(located(pinned, nullptr) == "pinned host memory");
  CHECK(detail::place_of_address(static_cast<const std::byte*>(pinned), [] { return std::string("it"); }) ==
        memory_place{memory_place::kind::pinned, 0});
  CHECK(located(on_0, nullptr) == "device memory of device 0");
  CHECK(located(on_1, nullptr) == "device memory of device 1");
  CHECK(located(on_0, static_cast<std::byte*>(on_0) + bytes) == "device memory of device 0");
  CHECK(
      located(on_0, on_1) ==
      "reshard: rank 3: param of family 0, member 1, expert 0 lies in device memory of device 1, and others in device "
      "memory of device 0; a binding lies in one place");
  CHECK(located(on_0, pinned).find("lies in pinned host memory, and others in device memory") != std::string::npos);
  CHECK(located(on_1, static_cast<std::byte*>(on_1) + 128)
            .find("param of family 0, member 1, expert 0 needs 8192 bytes from where it begins, and its allocation on "
                  "device 1 "
                  "has 8064") != std::string::npos);
  CHECK(located(on_0, static_cast<std::byte*>(on_0) + bytes, 2 * bytes).find("needs 16256 bytes") != std::string::npos);
  device_granules pool(1);
  device_memory range(pool, 3 * granule);
  binding b("granules");
  b.add(w, memory{range.data() + granule, bytes});
  b.own(range);
  b.seal();
  locate_memory(b);  // nothing of it is mapped
  CHECK(b.place() == memory_place{memory_place::kind::device, 1});
  range.take_all();
  binding across("mapped before");  // over two granules, which are two mappings
  across.add(w, memory{range.data() + granule - 100, bytes});
  across.seal();
  locate_memory(across);
  CHECK(across.place() == memory_place{memory_place::kind::device, 1});
  for (void* const at : {on_0, on_1}) detail::require_cuda(cudaFree(at), "free");
  detail::require_cuda(cudaFreeHost(pinned), "free");
}

TEST_CASE("a lane makes the copies of tables longer than it sends at once, and writes zeros") {
  detail::require_cuda(cudaSetDevice(0), "use a device");
  constexpr index_t count = 30'000;  // three parts
  void *tables = nullptr, *memory = nullptr;
  detail::require_cuda(cudaMalloc(&tables, device_lane::table_bytes), "allocate");
  detail::require_cuda(cudaMalloc(&memory, 64 * count), "allocate");
  auto* const at = static_cast<std::byte*>(memory);
  {
    device_lane lane(static_cast<std::byte*>(tables));
    const auto finish = [&] {
      while (!lane.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    };
    CHECK(lane.idle());
    lane.load();
    finish();
    std::vector<std::uint32_t> numbers(count * 16);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i * 2654435761u);
    emulation::poke(memory, numbers.data(), 64 * count);
    copy_table table;
    for (index_t i = 0; i < count; ++i) table.add(at + 64 * i + 32, at + 64 * i, {.run_bytes = 32});
    const long before_table = launches();
    lane.copy(table, std::chrono::seconds(5));
    finish();
    constexpr index_t part = device_lane::part_bytes / static_cast<index_t>(sizeof(table_copy));
    CHECK(launches() - before_table == ceil_divide(count, part));
    for (const index_t entries : {index_t{0}, part}) {  // nothing is no launch, and what fits into one is one
      copy_table exact;
      for (index_t i = 0; i < entries; ++i) exact.add(at + 64 * i + 32, at + 64 * i, {.run_bytes = 32});
      const long so_far = launches();
      lane.copy(exact, std::chrono::seconds(5));
      finish();
      CHECK(launches() - so_far == (entries == 0 ? 0 : 1));
    }
    std::vector<std::uint32_t> found(numbers.size());
    emulation::peek(found.data(), memory, 64 * count);
    index_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != numbers[i / 16 * 16 + i % 8] ? 1 : 0;
    CHECK(wrong == 0);
    const bound_box zeros{{0, {}, {{{0, 2}, {0, 3}, {0, 40'000}}}}, at + 2, {200'000, 60'000, 1}, 2};
    lane.zero(zeros, std::chrono::seconds(5));
    finish();
    std::vector<std::uint16_t> after(32 * count), before(32 * count);
    std::memcpy(before.data(), found.data(), 64 * count);
    emulation::peek(after.data(), memory, 64 * count);
    for (index_t i = 0; i < 2; ++i)
      for (index_t j = 0; j < 3; ++j)
        std::fill_n(before.begin() + 1 + i * 200'000 + j * 60'000, 40'000, std::uint16_t{0});
    CHECK(before == after);
    std::atomic<bool> go = false;
    emulation::enqueue(lane.stream().get(), [&go] {
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    CHECK(refused([&] { lane.copy(table, std::chrono::milliseconds(70)); }) ==
          "reshard: copies on a device did not end for 70 ms");
    go = true;
    while (!lane.stream().idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (void* const a : {tables, memory}) detail::require_cuda(cudaFree(a), "free");
}

TEST_CASE("an old error of the caller's is no launch's, and the caller finds none of the library's") {
  detail::require_cuda(cudaSetDevice(0), "use a device");
  void *tables = nullptr, *memory = nullptr;
  detail::require_cuda(cudaMalloc(&tables, device_lane::table_bytes), "allocate");
  detail::require_cuda(cudaMalloc(&memory, 64), "allocate");
  auto* const at = static_cast<std::byte*>(memory);
  {
    device_lane lane(static_cast<std::byte*>(tables));
    const auto finish = [&] {
      while (!lane.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    };
    CHECK(cudaSetDevice(99) == cudaErrorInvalidDevice);  // and nobody asks cudaGetLastError
    CHECK(refused([&] { lane.load(); }) == "accepted");
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
    copy_table table;
    table.add(at, at + 32, {.run_bytes = 32});
    CHECK(refused([&] { lane.copy(table, std::chrono::seconds(5)); }) == "accepted");
    finish();
    static_cast<void>(cudaGetLastError());

    std::atomic<bool> go = false;
    emulation::enqueue(lane.stream().get(), [&go] {
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    lane.copy(table, std::chrono::seconds(5));
    CHECK(!lane.idle());
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(!lane.stream().idle());
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    go = true;
    finish();

    emulation::fail("launch", 1);
    CHECK(refused([&] {
            lane.copy(table, std::chrono::seconds(5));
          }).starts_with("reshard: CUDA could not launch copies: "));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    for (const char* const end : {"cudaStreamDestroy", "cudaEventDestroy", "cudaFreeHost"}) {
      CAPTURE(end);
      emulation::fail(end, 1);
      {
        const cuda_stream stream;
        const cuda_event event;
        const pinned_memory pinned(64);
      }
      CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
  }
  for (void* const a : {tables, memory}) detail::require_cuda(cudaFree(a), "free");
}
