// SPDX-License-Identifier: Apache-2.0
// The other files of this program are static_asserts: that they compiled is the test.
int main() {}
