// SPDX-License-Identifier: Apache-2.0
// Jobs: how boxes are cut into them, job by job and byte by byte; whose stage they are; which pages they commit.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <reshard/copy/copy_jobs.hpp>
#include <reshard/memory/pages.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include "../oracle/memory_judge.hpp"

using namespace reshard;

namespace {
/// Pages that the kernel was asked to populate, call by call.
std::vector<std::int64_t> populated;
}  // namespace

/// Takes the place of the C library's.
extern "C" int madvise(void* at, std::size_t bytes, int advice) noexcept {
  constexpr int populate_write = 23;  // of Linux 5.14
  if (advice == populate_write) populated.push_back(static_cast<std::int64_t>(bytes) / page_bytes);
  return static_cast<int>(::syscall(SYS_madvise, at, bytes, advice));
}

namespace {

/// One box at two places, each at strides of its own; the source holds the judge's values.
struct one_copy {
  tensor_box what;
  std::vector<std::byte> source, target;
  bound_box from, to;
  std::array<long, 3> whole;

  static bytes_t reach(const tensor_box& what, const index_t (&stride)[3]) {
    index_t elements = 1;
    for (int i = 0; i < 3; ++i) elements += (what.where.dim[i].size() - 1) * stride[i];
    return elements * width(adam[what.state].type);
  }
  one_copy(const tensor_box& box, const index_t (&from_stride)[3], const index_t (&to_stride)[3])
      : what(box), source(static_cast<std::size_t>(reach(box, from_stride))),
        target(static_cast<std::size_t>(reach(box, to_stride))), from{box,
                                                                      source.data(),
                                                                      {from_stride[0], from_stride[1], from_stride[2]},
                                                                      width(adam[box.state].type)},
        to{box, target.data(), {to_stride[0], to_stride[1], to_stride[2]}, width(adam[box.state].type)},
        whole{box.where.dim[0].end + 1, box.where.dim[1].end + 1, box.where.dim[2].end + 1} {
    oracle::write_known(plain(from));
  }
  oracle::memory_box plain(const bound_box& b) const {
    oracle::memory_box result{b.data,
                              {},
                              {},
                              {b.stride[0], b.stride[1], b.stride[2]},
                              b.element_bytes,
                              whole,
                              {b.state, b.tensor.family, b.tensor.member, b.tensor.expert}};
    for (std::size_t i = 0; i < 3; ++i) result.begin[i] = b.where.dim[i].begin, result.end[i] = b.where.dim[i].end;
    return result;
  }
  index_t right() const {
    oracle::verdict found;
    oracle::judge(plain(to), found);
    return found.compared - found.wrong;
  }

  /// Runs the jobs one by one, each into blank memory: every element comes once, in its place, and nothing else does.
  /// The destination bytes of each job.
  std::vector<bytes_t> run_each(const job_list& jobs) {
    REQUIRE(jobs.size() < 100);
    std::vector<bytes_t> sizes;
    std::vector<char> written(target.size(), 0);
    index_t twice = 0, elements = 0;
    const binding none;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      std::fill(target.begin(), target.end(), std::byte{});
      jobs.run(i, none);
      const index_t came = right();  // no value of the judge's is 0
      bytes_t differ = 0;
      oracle::each_element(plain(to), [&](const std::byte* at, std::uint64_t, long, long, long) {
        if (std::all_of(at, at + to.element_bytes, [](std::byte b) { return b == std::byte{}; })) return;
        twice += written[static_cast<std::size_t>(at - target.data())]++;
        ++differ;
      });
      CHECK(came == differ);
      index_t bytes = 0;
      for (const std::byte b : target) bytes += b != std::byte{} ? 1 : 0;
      CHECK(bytes <= came * to.element_bytes);  // and none between the elements
      elements += came;
      sizes.push_back(came * to.element_bytes);
    }
    CHECK(twice == 0);
    CHECK(elements == what.where.volume());
    return sizes;
  }
};

std::vector<bytes_t> sizes_of(const tensor_box& what, const index_t (&from_stride)[3], const index_t (&to_stride)[3]) {
  one_copy c(what, from_stride, to_stride);
  job_list jobs(1);
  jobs.add(0, c.to, c.from, nullptr);
  jobs.seal();
  CHECK(jobs.begin(0) == 0);
  CHECK(jobs.end(0) == jobs.size());
  return c.run_each(jobs);
}
std::vector<bytes_t> sizes_of(const tensor_box& what) {
  const index_t columns = what.where.dim[2].size(), part = columns * what.where.dim[1].size();
  return sizes_of(what, {part, columns, 1}, {part, columns, 1});
}
tensor_box of(index_t parts, index_t rows, index_t columns, int state = 1) {
  return {state, {}, {{{1, 1 + parts}, {2, 2 + rows}, {3, 3 + columns}}}};
}

using list = std::vector<bytes_t>;
constexpr index_t most_words = job_bytes / 4;

}  // namespace

TEST_CASE("a box is cut at its outermost dimension, as late as can be") {
  CHECK(sizes_of(of(1, 1, most_words)) == list{job_bytes});
  CHECK(sizes_of(of(1, 1, most_words + 1)) == list{job_bytes, 4});
  CHECK(sizes_of(of(1, 1, 3 * most_words, 0)) == list{job_bytes, job_bytes / 2});
  CHECK(sizes_of(of(1, 4, most_words / 4)) == list{job_bytes});
  CHECK(sizes_of(of(1, 5, most_words / 4)) == list{job_bytes, job_bytes / 4});
  CHECK(sizes_of(of(4, 2, most_words / 8)) == list{job_bytes});
  CHECK(sizes_of(of(5, 2, most_words / 8)) == list{job_bytes, job_bytes / 4});
  CHECK(sizes_of(of(2, 40, 5000)) ==
        list{260'000, 260'000, 260'000, 20'000, 260'000, 260'000, 260'000, 20'000});  // parts that are too long
  CHECK(sizes_of(of(1, 2, 100'000)) ==
        list{job_bytes, 400'000 - job_bytes, job_bytes, 400'000 - job_bytes});  // rows that are
  CHECK(sizes_of(of(2, 1, 100'000)) == list{job_bytes, 400'000 - job_bytes, job_bytes, 400'000 - job_bytes});
  CHECK(sizes_of(of(3, 3, 3)) == list{108});
  CHECK(sizes_of(of(1, 1, 1)) == list{4});
}

TEST_CASE("every element arrives once at its own place, whatever the strides on either side") {
  CHECK(sizes_of(of(3, 50, 700), {70'000, 1000, 1}, {35'007, 700, 1}).size() == 3);
  CHECK(sizes_of(of(3, 50, 700), {1, 3, 150}, {35'000, 700, 1}).size() == 3);
  CHECK(sizes_of(of(2, 700, 150), {105'000, 150, 1}, {1, 2, 1400}).size() == 4);
  CHECK(sizes_of(of(2, 7, 30'000), {300'000, 40'000, 1}, {1, 60'001, 2}).size() == 8);
  CHECK(sizes_of(of(2, 3, 4), {100, 30, 3}, {1, 2, 6}) == list{96});  // a job of three dimensions
  CHECK(sizes_of(of(2, 7, 30'000, 0), {210'000, 30'000, 1}, {210'000, 30'000, 1}).size() == 4);
}

TEST_CASE("jobs belong to the stages that they were added for") {
  one_copy big(of(1, 5, most_words / 4), {0, most_words / 4, 1}, {0, most_words / 4, 1}),
      small(of(2, 3, 4), {12, 4, 1}, {12, 4, 1});
  job_list jobs(6);
  jobs.add(1, small.to, small.from, nullptr);
  jobs.add(1, big.to, big.from, nullptr);
  jobs.add(3, big.to, big.from, nullptr);
  jobs.add(4, small.to, small.from, nullptr);
  jobs.seal();
  const std::vector<std::pair<std::size_t, std::size_t>> expected = {{0, 0}, {0, 3}, {3, 3}, {3, 5}, {5, 6}, {6, 6}};
  for (index_t k = 0; k < 6; ++k) CHECK(std::pair(jobs.begin(k), jobs.end(k)) == expected[static_cast<std::size_t>(k)]);
  CHECK(jobs.size() == 6);
  const job_list empty(3);
  CHECK(empty.begin(2) == empty.end(2));
}

TEST_CASE("a job commits the pages that it is the first to write, and no others") {
  const tensor_box what = of(1, 6, most_words / 4);  // a job of four rows, and one of two
  one_copy source(what, {0, most_words / 4, 1}, {0, most_words / 4, 1});
  const bytes_t bytes = what.where.volume() * 4;
  page_range range(bytes + page_bytes);
  const bound_box to{what, range.data() + 100, {0, most_words / 4, 1}, 4};
  binding into;
  into.add(to);
  into.own(range);
  into.seal();
  page_stages pages(into, binding_side::target);
  job_list jobs(1);
  jobs.add(0, to, source.from, &pages);
  jobs.seal();
  REQUIRE(jobs.size() == 2);
  CHECK(range.resident_bytes() == 0);
  populated.clear();
  jobs.run(1, into);
  CHECK(range.resident_bytes() ==
        job_bytes / 2 + page_bytes);  // the page that both touch is committed by the copy itself
  range.release(page_span{0, range.bytes() / page_bytes});
  jobs.run(0, into);
  CHECK(range.resident_bytes() == job_bytes + page_bytes);
  jobs.run(1, into);
  CHECK(range.resident_bytes() == bytes + page_bytes);
#ifdef MADV_POPULATE_WRITE
  // each before its copy, in one call; the page that both touch is the first job's
  CHECK(populated == std::vector<std::int64_t>{32, 65, 32});
#endif
  oracle::verdict found;
  oracle::judge(source.plain(to), found);
  CHECK(found.compared == what.where.volume());
  CHECK(found.wrong == 0);
}

TEST_CASE("a job commits no page between the rows that it writes") {
  const tensor_box what = of(1, 4, 8);  // four short rows, each in a page of its own and two pages apart
  one_copy source(what, {0, 8, 1}, {0, 8, 1});
  page_range range(8 * page_bytes);
  binding into;
  const index_t stride[] = {0, 2 * page_bytes / 4, 1};
  into.add(bound_box{what, range.data(), {stride[0], stride[1], stride[2]}, 4});
  into.own(range);
  into.seal();
  const bound_box to = into.boxes()[0];
  page_stages pages(into, binding_side::target);
  job_list jobs(1);
  jobs.add(0, to, source.from, &pages);
  jobs.seal();
  REQUIRE(jobs.size() == 1);
  jobs.run(0, into);
  CHECK(range.resident_bytes() == 4 * page_bytes);
}

TEST_CASE("several threads take jobs of one list") {
  one_copy c(of(3, 100, 3000), {330'000, 3100, 1}, {300'000, 3000, 1});
  job_list jobs(1);
  jobs.add(0, c.to, c.from, nullptr);
  jobs.seal();
  CHECK(jobs.size() > 12);
  const binding none;
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> running;
  for (int t = 0; t < 4; ++t)
    running.emplace_back([&] {
      for (std::size_t i; (i = next++) < jobs.size();) jobs.run(i, none);
    });
  for (std::thread& t : running) t.join();
  CHECK(c.right() == c.what.where.volume());
}
