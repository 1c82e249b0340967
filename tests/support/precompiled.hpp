// SPDX-License-Identifier: Apache-2.0
// What nearly every test includes, compiled once for all of them where the compiler gains by it. A test includes what
// it names all the same: g++ compiles it without this.
#pragma once

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <reshard/reshard.hpp>
#include <reshard/switching.hpp>
#include <reshard/testing.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>
