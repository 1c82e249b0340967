// SPDX-License-Identifier: Apache-2.0
// The main of every test program, compiled once. It lives in a static library, so a program with a main of its own may
// link it too. Filters that let no case through are a fault: a test that runs nothing would pass. So is a case that a
// decorator skips: the gate could not tell it from those that a filter leaves out.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

namespace {
struct all_ran : doctest::IReporter {
  const char* skipped = nullptr;
  explicit all_ran(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& run) override {
    if (skipped == nullptr && run.numTestCasesPassingFilters != 0) return;
    if (skipped != nullptr) std::fprintf(stderr, "a decorator skips the test case \"%s\"\n", skipped);
    else std::fputs("no test case of this program passes the filters\n", stderr);
    std::fflush(stdout);
    std::_Exit(1);
  }
  void test_case_skipped(const doctest::TestCaseData& it) override {
    if (it.m_skip) skipped = it.m_name;
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
};
REGISTER_LISTENER("all_ran", 1, all_ran);
}  // namespace

int main(int argc, char** argv) { return doctest::Context(argc, argv).run(); }
