#include "core/nearest.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trireme {

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  std::vector<int> before(columns), above(columns), row(columns);  // rows i - 2, i - 1 and i of the table
  for (std::size_t j = 0; j < columns; ++j) above[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < columns; ++j) {
      const int substitution = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above.back();
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  int smallest = std::numeric_limits<int>::max();
  for (const std::string& name : names) {
    const int distance = edit_distance(word, name);
    if (distance < smallest) {
      smallest = distance;
      best = name;
    }
  }
  return best;
}

std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& names, std::size_t count) {
  std::vector<std::pair<int, const std::string*>> by_distance;
  by_distance.reserve(names.size());
  for (const std::string& name : names) by_distance.emplace_back(edit_distance(word, name), &name);
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> first;
  for (std::size_t i = 0; i < std::min(count, by_distance.size()); ++i) first.push_back(*by_distance[i].second);
  return first;
}

}  // namespace trireme
