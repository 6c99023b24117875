// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the SVG charts: no text extends beyond the edge, and a run with a duration has time on its x axis.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <regex>
#include <string>

#include "perf/results/plot.h"
#include "tests/perf/perf_run.h"

namespace
{

// Estimates the width of each text: at size 12 an average character has 6.6 pixels in the widest usual typeface, and
// 10 % more if it is bold.
void ExpectNothingBeyondTheEdge(const std::string &svg)
{
    std::smatch size;
    ASSERT_TRUE(
        std::regex_search(svg, size, std::regex("<svg[^>]* width=\"(\\d+)\" height=\"(\\d+)\"")));
    const double width = std::stod(size[1]), height = std::stod(size[2]);
    const std::regex text(
        "(<g font-size=\"(\\d+)\" font-weight=\"bold\">\\s*)?<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" "
        "text-anchor=\"(\\w+)\"( textLength=\"(\\d+)\"[^>]*)?>([^<]*)</text>");
    int n = 0;
    for (auto it = std::sregex_iterator(svg.begin(), svg.end(), text); it != std::sregex_iterator();
         ++it, n++) {
        const auto &m = *it;
        double font = m[2].matched ? std::stod(m[2]) : 12, x = std::stod(m[3]);
        double w = m[7].matched ? std::stod(m[7])
                                : static_cast<double>(m[8].length()) * 0.55 * font *
                                      (m[2].matched ? 1.1 : 1);
        double left = m[5] == "end" ? x - w : m[5] == "middle" ? x - w / 2 : x;
        EXPECT_GE(left, 0) << m[8];
        EXPECT_LE(left + w, width) << m[8];
        EXPECT_LE(std::stod(m[4]), height) << m[8];
    }
    EXPECT_EQ(n, Count(svg, "</text>"));
    EXPECT_GT(n, 5);
}

TEST(Svg, NoTextIsClipped)
{
    Dir d;
    const std::string out =
        " --plot " + (d / "s") + " --iters 1 --warmup 0 --plugin a-name-of-length=" + kTestnet;
    for (const char *run :
         {"scale --ranks 2 --preset resnet50 --repeat 2", "mesh --ranks 3 --sizes 8,4K",
          "p2p --sizes 8,4K", "ring --ranks 2 --preset resnet50 --repeat 2"}) {
        Outcome r = Perf(run + out);
        ASSERT_EQ(r.status, 0) << r.err;
        SCOPED_TRACE(run);
        ExpectNothingBeyondTheEdge(Slurp(d / "s"));
    }
}

// Long names make long sentences, which continue in the next line.
TEST(Svg, LongSentencesAreBroken)
{
    char *text = nullptr;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    std::string said = "all paths from host " + std::string(60, 'a') + " to host " +
                       std::string(60, 'b') + " are slow: 12.1 MB/s of 99.9 MB/s";
    EXPECT_EQ(pvn_plot_lines(nullptr, 20, 50, 720, PVN_PLOT_CHAR, 16, said.c_str()), 2);
    EXPECT_EQ(pvn_plot_lines(f, 20, 50, 720, PVN_PLOT_CHAR, 16, said.c_str()), 2);
    EXPECT_EQ(pvn_plot_lines(f, 20, 50, 720, PVN_PLOT_CHAR, 16, std::string(250, 'c').c_str()), 3);
    EXPECT_EQ(pvn_plot_lines(f, 20, 50, 720, PVN_PLOT_CHAR, 16, ""), 0);
    fclose(f);
    EXPECT_NE(nullptr, strstr(text, "y=\"66.0\"")) << text;
    EXPECT_EQ(Count(text, "<text"), 5) << text;
    free(text);
}

TEST(Svg, ARunOverATimeIsDrawnOverTime)
{
    Dir d;
    Outcome r = Perf("p2p --plugin t=" + kTestnet +
                     " --sizes 8,4K --duration 1 --interval 0.2 --plot " + (d / "s"));
    std::string svg = Slurp(d / "s");

    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(svg.find("bandwidth over time"), std::string::npos) << svg;
    EXPECT_NE(svg.find(">seconds<"), std::string::npos) << svg;
    EXPECT_EQ(Count(svg, "<polyline"), 2) << "a line per size";
    EXPECT_EQ(Count(svg, "<circle"), 0) << "one figure of all";

    // The number of intervals depends on the machine. Each printed interval is one step of the line, from its begin to its end.
    const std::regex interval(" - +[0-9.]+ s +(8 B|4 KiB) ");
    std::map<std::string, int> steps;
    for (auto it = std::sregex_iterator(r.out.begin(), r.out.end(), interval);
         it != std::sregex_iterator(); ++it)
        steps[(*it)[1]]++;
    size_t at = 0;
    for (const char *messages : {"8 B", "4 KiB"}) {
        at = svg.find("points=\"", at) + strlen("points=\"");
        EXPECT_GE(steps[messages], 1) << r.out;
        EXPECT_EQ(Count(svg.substr(at, svg.find('"', at) - at), ","), 2 * steps[messages]) << svg;
    }
    ExpectNothingBeyondTheEdge(svg);
}

// The chart of a run of a week has no more points than that of an hour, and their sums are correct.
TEST(Svg, IntervalsOfALongRunAreJoined)
{
    pvn_timeline t{};
    pvn_row row{};
    const int intervals = 10 * PVN_TIMELINE_MAX + 1;
    uint64_t bytes = 0, failovers = 0;

    row.u.interval.bytes_each = 8;
    row.u.interval.seconds = 1;
    row.u.interval.bytes = 1000;
    for (int i = 0; i < intervals; i++) {
        row.u.interval.from = i;
        row.u.interval.to = i + 1;
        row.u.interval.failovers = i == 77;
        ASSERT_EQ(pvn_timeline_add(&t, &row), 0);
        ASSERT_LE(t.n, PVN_TIMELINE_MAX);
    }
    for (int i = 0; i < t.n; i++) {
        bytes += t.point[i].i.bytes;
        failovers += t.point[i].i.failovers;
        EXPECT_EQ(t.point[i].i.from, i == 0 ? 0 : t.point[i - 1].i.to);
        EXPECT_EQ(t.point[i].i.bytes, 1000u * static_cast<uint64_t>(t.point[i].i.seconds));
    }
    EXPECT_EQ(bytes, 1000u * intervals);
    EXPECT_EQ(failovers, 1u);
    EXPECT_GT(t.n, PVN_TIMELINE_MAX / 4);
    free(t.point);
}

} // namespace
