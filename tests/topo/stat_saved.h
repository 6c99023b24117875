/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A fixture that writes files as pvn-topo --json stat saves them of the hosts of a job.
#ifndef PVN_TESTS_TOPO_STAT_SAVED_H
#define PVN_TESTS_TOPO_STAT_SAVED_H

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "tests/topo/cli.h"
#include "tests/topo/tree.h"

struct CommText {
    bool sender;
    int peer;     // rank
    double stall; // seconds; 0 if the comm is not stalled
    long messages = 100;
};

// Rank r has pid 100 + r, on the host n<r / per_host>.
class StatJob : public testing::Test
{
  protected:
    TempDir dir;
    int per_host = 1;

    std::string host(int rank) const
    {
        return "n" + std::to_string(rank / per_host);
    }
    std::string comm(const CommText &c, int id) const
    {
        char text[600];
        snprintf(text, sizeof(text),
                 "{\"comm\": %d, \"kind\": \"%s\", \"state\": \"UP\", \"closed\": false, "
                 "\"trouble\": %s, \"text\": \"%s\", \"device\": \"soft0\", \"peer_host\": \"%s\", "
                 "\"peer_pid\": %d, \"peer_address\": \"192.0.2.1:1\", \"stalled_s\": %s, "
                 "\"messages\": %ld, \"in_state_s\": 60.0, \"moved_s_ago\": 9.0}",
                 id, c.sender ? "send" : "recv", c.stall > 0 ? "\"stalled\"" : "null",
                 c.stall > 0 ? "message 7: nothing came" : "", host(c.peer).c_str(), 100 + c.peer,
                 c.stall > 0 ? std::to_string(c.stall).c_str() : "null", c.messages);
        return text;
    }
    std::string process(int rank, const std::vector<CommText> &comms,
                        const std::string &state = "sleeping", double written = 0.1,
                        const std::string &life = "alive") const
    {
        std::string text = "{\"file\": \"/dev/shm/x/" + std::to_string(100 + rank) +
                           ".stat\", \"pid\": " + std::to_string(100 + rank) + ", \"host\": \"" +
                           host(rank) + "\", \"command\": \"python\", \"rank\": \"" +
                           std::to_string(rank) + "\", \"life\": \"" + life + "\", \"state\": \"" +
                           state + "\", \"plugin\": \"0.1.0\", \"interface\": 11, " +
                           "\"began_s_ago\": 100.0, \"written_s_ago\": " + std::to_string(written) +
                           ", \"comms\": [";
        for (size_t i = 0; i < comms.size(); i++)
            text += (i ? ", " : "") + comm(comms[i], static_cast<int>(i) + 1);
        return text + "]}";
    }
    // Saves the processes of a host. Returns the file's name with a space before it.
    std::string save(const std::string &name, const std::vector<std::string> &processes)
    {
        std::ofstream f(dir.path + "/" + name);
        f << "{\"kind\": \"stat\", \"processes\": [";
        for (size_t i = 0; i < processes.size(); i++)
            f << (i ? ", " : "") << processes[i];
        f << "]}";
        return " " + name;
    }
    Result run(const std::string &args)
    {
        return run_tool(dir.path, args, "NCCL_PVRDMA_STATS_DIR=" + dir.path + "/none");
    }
    static std::string first_line(const Result &r)
    {
        return squeeze(r.out.substr(0, r.out.find("\n    rank")));
    }
    // A ring of four in which nothing passes rank 2. The file of rank left_out is not written.
    std::string ring(int left_out, const std::string &state, double written,
                     const std::string &life = "alive")
    {
        std::string names;
        const std::vector<std::vector<CommText>> comms = {
            {{true, 1, 8}, {false, 3, 7}},
            {{true, 2, 9}, {false, 0, 0}},
            {{true, 3, 0}, {false, 1, 0}},
            {{true, 0, 0}, {false, 2, 9}},
        };
        for (int r = 0; r < 4; r++)
            if (r != left_out)
                names +=
                    save(std::to_string(r) + ".json",
                         {process(r, comms[static_cast<size_t>(r)], r == 2 ? state : "sleeping",
                                  r == 2 ? written : 0.1, r == 2 ? life : "alive")});
        return names;
    }
};

#endif
