// SPDX-License-Identifier: Apache-2.0
// What tools/gpu starts: one thing that is checked and timed on a GPU, told as a line of JSON. Ranks are processes of
// their own, that tools/gpu starts before CUDA is touched.
//   gpu device                            its name, driver and NCCL; exit code 77 where there is none
//   gpu copies                            launches of copies against cudaMemcpyAsync of as many bytes
//   gpu one MIB BUDGET_MIB GRANULE_MIB    one rank re-lays its state; a budget of 0: memory is there
//   gpu rank D PORT N FROM TO STAGES HOW  a switch by N ranks, timed stage by stage
//   gpu fault D PORT N FROM TO kill|stop keep|release
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/switch/torn_switch.hpp>
#include <reshard/transport/nccl.hpp>
#include <reshard/transport/socket_meeting.hpp>

#include "../device_storage.hpp"

using namespace reshard;
using testing::device_storage;

namespace {

using words = std::vector<std::string>;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}
void must(cudaError_t code, const char* what) { detail::require_cuda(code, what); }

/// One line, {"name":value,..}.
class told {
 public:
  told& number(const std::string& name, double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.6g", value);
    return add(name, text);
  }
  told& text(const std::string& name, const std::string& value) {
    std::string quoted = "\"";
    for (const char c : value)
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : c < ' ' ? " " : std::string(1, c);
    return add(name, quoted + "\"");
  }
  void print() const {
    std::printf("{%s}\n", all_.c_str());
    std::fflush(stdout);
  }

 private:
  told& add(const std::string& name, const std::string& value) {
    all_ += (all_.empty() ? "\"" : ",\"") + name + "\":" + value;
    return *this;
  }
  std::string all_;
};

bytes_t free_bytes() {
  std::size_t free = 0, all = 0;
  must(cudaMemGetInfo(&free, &all), "say how much memory is free");
  return static_cast<bytes_t>(free);
}

/// CUDA's first device, or exit code 77.
int device() {
  int count = 0, version = 0, driver = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
    std::fprintf(stderr, "tools/gpu: no GPU here: %s\n",
                 code != cudaSuccess ? cudaGetErrorString(code) : "CUDA finds none");
    return 77;
  }
  cudaDeviceProp of = {};
  must(cudaGetDeviceProperties(&of, 0), "describe a device");
  must(cudaDriverGetVersion(&driver), "say its version");
  detail::require_nccl(ncclGetVersion(&version), "say its version");
  told()
      .text("name", of.name)
      .number("driver", driver)
      .number("nccl", version)
      .number("memory_bytes", static_cast<double>(of.totalGlobalMem))
      .print();
  return 0;
}

// Copies -------------------------------------------------------------------------------------------------------------

/// Seconds of what is put on a stream, by events; the median of 20.
double timed(cudaStream_t stream, const std::function<void()>& put) {
  cudaEvent_t begin = nullptr, end = nullptr;
  must(cudaEventCreate(&begin), "make an event");
  must(cudaEventCreate(&end), "make an event");
  std::vector<double> seconds;
  for (int i = 0; i < 21; ++i) {
    must(cudaEventRecord(begin, stream), "record an event");
    put();
    must(cudaEventRecord(end, stream), "record an event");
    must(cudaEventSynchronize(end), "wait for an event");
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin, end), "tell the time between events");
    if (i > 0) seconds.push_back(milliseconds / 1000);
  }
  must(cudaEventDestroy(begin), "give back an event");
  must(cudaEventDestroy(end), "give back an event");
  return median(seconds);
}

class copy_bench {
 public:
  explicit copy_bench(bytes_t bytes) : bytes_(bytes) {
    for (std::byte** at : {&from_, &into_})
      must(cudaMalloc(reinterpret_cast<void**>(at), static_cast<std::size_t>(widest * bytes + 4096)),
           "allocate memory");
    must(cudaMemset(from_, 1, static_cast<std::size_t>(widest * bytes + 4096)), "write memory");
    must(static_cast<cudaError_t>(load_copy_kernels(stream_.get())), "load kernels");
    memcpy_ = timed(stream_.get(), [&] {
      must(cudaMemcpyAsync(into_, from_, static_cast<std::size_t>(bytes_), cudaMemcpyDeviceToDevice, stream_.get()),
           "copy");
    });
  }
  copy_bench(const copy_bench&) = delete;
  ~copy_bench() {
    for (void* at : {static_cast<void*>(from_), static_cast<void*>(into_)}) static_cast<void>(cudaFree(at));
  }

  /// Runs of so many bytes, `pitch` apart on one side and dense on the other; how they compare with cudaMemcpyAsync.
  void runs(const std::string& what, bytes_t run, bytes_t pitch, bool packs, bytes_t off = 0) {
    const index_t rows = bytes_ / run, of_one = greatest(1, job_bytes / run);
    copy_table table;
    for (index_t first = 0; first < rows; first += of_one) {
      copy_shape s{.ndim = 1, .run_bytes = run};
      s.extent[0] = least(of_one, rows - first);
      s.src_stride[0] = packs ? pitch : run, s.dst_stride[0] = packs ? run : pitch;
      table.add(into_ + first * s.dst_stride[0] + off, from_ + first * s.src_stride[0], s);
    }
    time(what, table, rows * run);
  }
  /// So many copies of so many bytes each.
  void jobs(const std::string& what, index_t count, bytes_t bytes) {
    copy_table table;
    for (index_t i = 0; i < count; ++i)
      table.add(into_ + i * bytes, from_ + (i * 7919 % count) * bytes, {.run_bytes = bytes});
    time(what, table, count * bytes);
  }

 private:
  void time(const std::string& what, const copy_table& table, bytes_t moved) {
    void* there = nullptr;
    const std::size_t bytes = table.size() * sizeof(table_copy);
    must(cudaMalloc(&there, bytes), "allocate memory");
    must(cudaMemcpy(there, table.data(), bytes, cudaMemcpyHostToDevice), "send a table");
    const double seconds = timed(stream_.get(), [&] {
      must(static_cast<cudaError_t>(
               launch_copies(static_cast<const table_copy*>(there), static_cast<index_t>(table.size()), stream_.get())),
           "launch copies");
    });
    must(cudaFree(there), "free memory");
    const double whole = memcpy_ * static_cast<double>(moved) / static_cast<double>(bytes_);
    told()
        .text("what", what)
        .number("ratio", whole / seconds)
        .number("gb_per_second", static_cast<double>(moved) / seconds / 1e9)
        .number("copies", static_cast<double>(table.size()))
        .print();
  }

  static constexpr bytes_t widest = 8;  // of a pitch over a run

  bytes_t bytes_;
  std::byte *from_ = nullptr, *into_ = nullptr;
  cuda_stream stream_;
  double memcpy_ = 0;
};

int copies(bytes_t bytes) {
  copy_bench bench(bytes);
  // hidden 8192 and 4096 of bf16: a column split by 8 has runs of 2 KiB and 1 KiB; by 64, 256 and 128 B
  for (const bool packs : {true, false}) {
    const std::string way = packs ? "pack " : "unpack ";
    bench.runs(way + "LLaMA-2-70B rows", 16384, 16384, packs);
    bench.runs(way + "LLaMA-2-70B columns by 8", 2048, 16384, packs);
    bench.runs(way + "Qwen3-235B columns by 8", 1024, 8192, packs);
    bench.runs(way + "Qwen3-235B columns by 64", 128, 256, packs);
    bench.runs(way + "Qwen3-235B columns by 8, ends that differ modulo 16", 1024, 8192 / 4, packs, 2);
  }
  bench.jobs("131072 copies of 8 KiB", least(131072, bytes / 8192), 8192);
  return 0;
}

// One rank -----------------------------------------------------------------------------------------------------------

model model_of(bytes_t state_bytes) {  // 16 bytes an element with gradients apart: 14 of them here
  const index_t hidden = 1024, layer = 12 * hidden * hidden;
  return make_transformer({.name = "of so many bytes",
                           .layers = greatest(2, state_bytes / 14 / layer),
                           .hidden = hidden,
                           .heads = 16,
                           .groups = 16,
                           .head_dim = 64,
                           .ffn = 8 * hidden / 3 / 64 * 64,
                           .vocabulary = 8192});
}

int one(const words& w) {
  const bytes_t budget = std::atoll(w[1].c_str()) << 20, granule = std::atoll(w[2].c_str()) << 20;
  const model m = model_of(std::atoll(w[0].c_str()) << 20);
  const layout_switch change(space(m, parse_degrees("dp=1,zero=0")), space(m, parse_degrees("dp=1,zero=1")));
  must(cudaSetDevice(0), "use a device");
  must(cudaFree(nullptr), "begin on a device");
  listening_socket listening("127.0.0.1:0");
  const words address = {"127.0.0.1:" + std::to_string(listening.port())};
  socket_meeting meeting(0, address, std::move(listening), std::chrono::seconds(60));
  nccl_endpoint here(meeting, 0);
  const bytes_t at_first = free_bytes();
  bytes_t least_free = at_first;
  device_granules pool(0, granule);
  device_storage before(change.from(), 0, "before", pool, pages_are::committed),
      after(change.to(), 0, "after", pool, budget == 0 ? pages_are::committed : pages_are::reserved);
  before.fill(change.from());
  switch_options options{.after_use = budget == 0 ? sources::keep : sources::release};
  if (budget > 0) options.budget = budget;
  options.on_stage = [&](const stage_report&) { least_free = least(least_free, free_bytes()); };
  double seconds = 0;
  switch_report report;
  if (budget == 0) {  // copies alone, the median of 20
    prepared_switch prepared(change, before.tensors, after.tensors, here);
    std::vector<double> all;
    for (int i = 0; i < 20; ++i) {
      const double begin = now();
      prepared.run();
      all.push_back(now() - begin);
    }
    report = prepared.report(), seconds = median(all);
  } else {
    const double begin = now();
    report = switch_state(change, before.tensors, after.tensors, here, options);
    seconds = now() - begin;
  }
  const comparison found = after.compare(change.to());
  std::vector<double> maps;  // GiB mapped and unmapped again, in granules
  device_memory extra(pool, bytes_t{1} << 30);
  const memory_block block = extra.block();
  for (int i = 0; i < 5; ++i) {
    const double begin = now();
    block.commit({0, block.granules});
    block.release({0, block.granules});
    maps.push_back(now() - begin);
  }
  told()
      .number("wrong", static_cast<double>(found.wrong))
      .number("elements", static_cast<double>(found.elements))
      .number("stages", static_cast<double>(report.stages))
      .number("seconds", seconds)
      .number("retained_bytes", static_cast<double>(report.retained))
      .number("peak_bytes", static_cast<double>(at_first - least_free))
      .number("bound_bytes", static_cast<double>(std::max(report.memory.before, report.memory.after) + budget))
      .number("left_bytes", static_cast<double>(at_first - free_bytes()))
      .number("live_bytes", static_cast<double>(after.mapped_bytes() + before.mapped_bytes()))
      .number("ms_per_gib_mapped_and_unmapped", median(maps) * 1000)
      .print();
  return found.wrong == 0 ? 0 : 1;
}

// Ranks --------------------------------------------------------------------------------------------------------------

model small() {
  return make_transformer({.name = "small",
                           .layers = 8,
                           .hidden = 512,
                           .heads = 8,
                           .groups = 8,
                           .head_dim = 64,
                           .ffn = 1408,
                           .vocabulary = 8192});
}
/// Device d of n, whose addresses are ports one after the other.
words addresses_of(const std::string& port, long n) {
  words all;
  for (long d = 0; d < n; ++d) all.push_back("127.0.0.1:" + std::to_string(std::atol(port.c_str()) + d));
  return all;
}
computed_switch change_of(const std::string& from, const std::string& to) {
  return layout_switch(space(small(), parse_degrees(from)), space(small(), parse_degrees(to)));
}

/// D PORT N FROM TO STAGES naive|buffered|asynchronous: memory there, three runs of which the second and third count.
int rank(const words& w) {
  const rank_t d = std::atol(w[0].c_str());
  const computed_switch change = change_of(w[3], w[4]);
  const index_t stages = std::atol(w[5].c_str());
  const auto how = w[6] == "naive"      ? exchange_as::naive
                   : w[6] == "buffered" ? exchange_as::buffered
                                        : exchange_as::asynchronous;
  must(cudaSetDevice(0), "use a device");
  const words addresses = addresses_of(w[1], std::atol(w[2].c_str()));
  socket_meeting meeting(d, addresses, listening_socket(addresses[static_cast<std::size_t>(d)]),
                         std::chrono::seconds(60));
  nccl_endpoint here(meeting, 0, {.how = how});
  device_granules pool(0);
  const rank_t f = change.from_rank(d), t = change.to_rank(d);
  device_storage before(change.from(), f, "before", pool, pages_are::committed),
      after(change.to(), t, "after", pool, pages_are::committed);
  const plan mine = make_plan(change, d);
  const staged_plan staged = stage_plan(mine, change, stages);
  page_stages pages(after.tensors, binding_side::target, change.states());
  here.offer(before.tensors);
  here.all_reduce_max(0);
  const auto peers = [](const std::vector<transfer>& list, rank_t transfer::*peer) {
    std::vector<rank_t> all;
    for (const transfer& one : list)
      if (std::find(all.begin(), all.end(), one.*peer) == all.end()) all.push_back(one.*peer);
    return all;
  };
  here.contact(peers(mine.sends, &transfer::dst), peers(mine.receives, &transfer::src));
  exchange_moves moves = here.prepare(staged, after.tensors, pages);
  if (const std::string sentence = here.disagreement(moves); !sentence.empty()) refuse(sentence);
  here.connect(moves);
  const index_t lag = here.facts().lag;
  index_t wrong = 0, elements = 0;
  std::vector<double> seconds;
  for (std::uint64_t run = 1; run <= 3; ++run) {
    before.fill(change.from(), known_values{run});
    here.all_reduce_max(0);
    const double begin = now();
    for (index_t slot = 0; slot < stages + lag; ++slot) here.move(moves, slot);
    for (index_t k = stages - lag; k < stages; ++k) here.await(k);
    here.all_reduce_max(0);
    if (run > 1) seconds.push_back(now() - begin);
    const comparison found = after.compare(change.to(), known_values{run});
    wrong += found.wrong, elements = found.elements;
  }
  told()
      .number("device", static_cast<double>(d))
      .number("wrong", static_cast<double>(wrong))
      .number("elements", static_cast<double>(elements))
      .number("seconds", *std::min_element(seconds.begin(), seconds.end()))
      .number("fixed_bytes", static_cast<double>(here.facts().fixed_bytes))
      .number("sent_bytes", static_cast<double>(moves.sent_bytes()))
      .print();
  return wrong == 0 ? 0 : 1;
}

/// D PORT N FROM TO kill|stop keep|release: the second device strikes itself once stage 1 is in place.
int fault(const words& w) {
  const rank_t d = std::atol(w[0].c_str());
  const computed_switch change = change_of(w[3], w[4]);
  const bool keep = w[6] == "keep";
  must(cudaSetDevice(0), "use a device");
  const words addresses = addresses_of(w[1], std::atol(w[2].c_str()));
  socket_meeting meeting(d, addresses, listening_socket(addresses[static_cast<std::size_t>(d)]),
                         std::chrono::seconds(10));
  nccl_endpoint here(meeting, 0, {.fixed_bytes = 0});
  device_granules pool(0);
  device_storage before(change.from(), d, "before", pool, pages_are::committed),
      after(change.to(), d, "after", pool, pages_are::reserved);
  before.fill(change.from());
  // two stages exceed it by 8 MiB without any staging, so there are four at least, and stage 1 is not the last
  switch_options options{.budget = keep ? no_budget : bytes_t{40} << 20,
                         .after_use = keep ? sources::keep : sources::release,
                         .route = {.stages = 8}};
  options.on_stage = [&](const stage_report& at) {
    if (d == 1 && at.stage == 1) {
      told().number("struck", now()).print();
      ::raise(w[5] == "kill" ? SIGKILL : SIGSTOP);
    }
  };
  const switch_ending end = attempt_switch(change, before.tensors, after.tensors, here, options);
  const double at = now();
  index_t wrong = 0;
  if (const ended::torn* t = std::get_if<ended::torn>(&end)) {
    const auto boxes = torn_boxes(change, *t);
    wrong = device_storage::compare_boxes(binding_after(boxes, d, before.tensors, after.tensors), change.to()).wrong;
  } else {
    const bool is_new = end.index() == 0 || end.index() == 4;
    wrong = is_new ? after.compare(change.to()).wrong : before.compare(change.from()).wrong;
  }
  constexpr const char* names[] = {"finished", "refused", "failed", "torn", "unknown"};
  told()
      .number("device", static_cast<double>(d))
      .text("outcome", names[end.index()])
      .text("sentence", sentence_of(end))
      .number("at", at)
      .number("wrong", static_cast<double>(wrong))
      .print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const words all(argv + 1, argv + argc);
  const std::string what = all.empty() ? "" : all[0];
  const words rest(all.begin() + (all.empty() ? 0 : 1), all.end());
  try {
    if (what == "device" && rest.empty()) return device();
    if (what == "copies" && rest.size() <= 1)
      return copies(rest.empty() ? bytes_t{1} << 30 : std::atoll(rest[0].c_str()));
    if (what == "one" && rest.size() == 3) return one(rest);
    if (what == "rank" && rest.size() == 7) return rank(rest);
    if (what == "fault" && rest.size() == 7) return fault(rest);
    std::fprintf(stderr, "tools/gpu: the program is started by tools/gpu\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  return 1;
}
