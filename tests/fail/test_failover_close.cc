// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Closes during a failover, or while an acknowledgement is late or lost. A receiver that has every
// message says so in the GOODBYE of its close.
#include "fail/failover_peer.h"

#include <fstream>

using namespace nccl;

namespace
{

// Reads the GOODBYE, which may take long to come, and returns its message number.
uint64_t goodbye_of(raw::Sock &ctrl)
{
    int type = 0;
    raw::Bytes body = ctrl.recv_frame(&type);
    EXPECT_EQ(PVN_FRAME_GOODBYE, type);
    return pvn_goodbye_decode(body.data(), body.size());
}

void has_one_message(Receiving &r)
{
    auto one = [&] { r.stream.send(message(0, {1, 2, 3}, 3)); };
    EXPECT_EQ(ncclSuccess, r.with(one, [&] { return r.done; }));
}

void begin_failover(Receiving &r)
{
    r.ctrl.send(lane_down());
    EXPECT_TRUE(eventually([&] {
        r.others.use(); // drives the idle comms, too
        return said("the connection is made again");
    }));
}

// Resets both connections. Nobody calls the plugin, so it does not notice.
void reset_unnoticed(Receiving &r)
{
    r.stream.reset();
    r.ctrl.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST(FailoverReceiving, ItsGoodbyeSaysWhatItHas)
{
    alone([] {
        raw::Sock ctrl;
        {
            Receiving r;
            EXPECT_EQ(ncclSuccess, r.with(
                                       [&] {
                                           r.stream.send(message(0, {1, 2, 3}, 3));
                                       },
                                       [&] { return r.done; }));
            std::swap(ctrl, r.ctrl);
        }
        EXPECT_EQ(1u, goodbye_of(ctrl));
    });
}

// The plugin's threads that run. A sanitizer may have its own.
int threads()
{
    int n = 0;
    for (const auto &thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(thread.path() / "comm") >> name;
        n += name.compare(0, 4, "pvn-") == 0;
    }
    return n;
}

// Connects again as the comm's peer would, and reads the answer of a comm that is closed.
void expect_one_message_at_the_answer(const Receiving &r)
{
    pvn_hello mine = with_features(r.h.session), theirs = {};
    mine.resumes = 9;
    int type = 0;
    raw::Sock s = raw::dial(r.h.addr.port);
    s.send(raw::preamble(PVN_PREAMBLE_CTRL, r.h.session, 100));
    s.send(raw::hello(mine));
    raw::Bytes body = s.recv_frame(&type);
    EXPECT_EQ(PVN_FRAME_HELLO, type);
    EXPECT_EQ(0, pvn_hello_decode(body.data(), body.size(), &theirs, nullptr));
    EXPECT_EQ(1u, theirs.received);
    EXPECT_EQ(1u, goodbye_of(s));
}

// Begins a connection to a listener where nobody answers.
void begin_to_connect(Net &n, const raw::Listener &l)
{
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *sc = nullptr;
    raw::make_handle(handle, l.port, 77, features);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc));
    EXPECT_EQ(nullptr, sc);
}

// The receiver's last acknowledgement is lost with the lanes. The receiver is closed before the
// peer connects again, and in one case before it has noticed the loss. The peer may come late: its
// machine stood still. The end of the plugin's use ends the wait for it, even if a connection is
// still being made then.
TEST(FailoverReceiving, APeerThatConnectsAgainAfterTheClose)
{
    struct Case {
        bool noticed, late;
    };
    for (const Case &c : {Case{true, false}, Case{false, false}, Case{true, true}}) {
        alone([&] {
            setenv("NCCL_PVRDMA_FAILOVER_TIMEOUT", "60s", 1); // finalize does not wait for it
            {
                const raw::Listener silent;
                Receiving r;
                has_one_message(r);
                if (c.noticed)
                    begin_failover(r);
                else
                    reset_unnoticed(r);
                r.close();
                std::this_thread::sleep_for(std::chrono::milliseconds(c.late ? 1500 : 0));
                expect_one_message_at_the_answer(r);
                begin_to_connect(r.n, silent);
                EXPECT_LT(0, threads());
            }
            // Finalize waits for 1.5 s at most, within which a busy machine may not end the threads.
            EXPECT_TRUE(eventually([] { return threads() == 0; }, 20));
        });
    }
}

// The peer has closed its end, or its process has ended, and nobody has called the receiver since.
TEST(FailoverReceiving, ACloseBehindThePeersIsSilent)
{
    for (bool closed : {true, false}) {
        alone([&] {
            Receiving r;
            has_one_message(r);
            if (closed)
                r.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, {}));
            // A close with unread bytes would reset the socket, so this only ends the stream.
            shutdown(r.ctrl.fd, SHUT_WR);
            shutdown(r.stream.fd, SHUT_WR);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            r.close();
            EXPECT_EQ("", Log::get().warnings());
        });
    }
}

// One thread closes a receiver in a failover while another thread, which drives a second comm, also
// drives this one.
TEST(FailoverReceiving, IsClosedByAnotherThread)
{
    alone([] {
        for (int i = 0; i < 10; i++) {
            Receiving r;
            has_one_message(r);
            begin_failover(r);
            std::atomic<bool> closed{false}, connected{false};
            std::thread peer([&] {
                r.connect_again(10);
                connected = true;
                r.next.ctrl.send(answer_frame(1, 1));
            });
            std::thread closing([&] {
                while (!connected)
                    std::this_thread::yield();
                std::this_thread::sleep_for(std::chrono::microseconds(i * 40));
                r.close();
                closed = true;
            });
            while (!closed)
                r.others.use();
            closing.join();
            peer.join();
            Log::get().clear();
        }
    });
}

// The acknowledgement of the last message is lost or late, and the peer closes meanwhile.
TEST(FailoverSending, AGoodbyeOfAPeerThatHasEverything)
{
    for (bool lost : {false, true}) {
        alone([&] {
            Sending s;
            auto one = [&] { return s.sent == 0 ? s.call() : ncclSuccess; };
            auto bye = [&] {
                raw::Bytes has_one(8);
                EXPECT_EQ(8, pvn_goodbye_encode(has_one.data(), 8, 1));
                s.stream.recv(PVN_FRAME_LEN + Sending::kBytes);
                if (lost)
                    s.lose();
                s.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, has_one));
            };
            EXPECT_EQ(ncclSuccess, during(bye, one, [&] { return s.sent == 1; }))
                << Log::get().text();
            EXPECT_FALSE(Log::get().warned({"closed its end"})) << Log::get().text();
        });
    }
}

// A peer in a failover sends its GOODBYE on the new connection, while that is made or when it is up.
TEST(FailoverSending, AGoodbyeOnTheNewConnection)
{
    for (bool up : {false, true}) {
        alone([&] {
            Sending s;
            auto one = [&] { return s.sent == 0 ? s.call() : ncclSuccess; };
            auto bye = [&] {
                pvn_hello mine = with_features(77);
                raw::Bytes has_one(8);
                EXPECT_EQ(8, pvn_goodbye_encode(has_one.data(), 8, 1));
                s.stream.recv(PVN_FRAME_LEN + Sending::kBytes);
                s.lose();
                s.ctrl.reset();
                s.next = greet_plugin(s.l, mine);
                if (up)
                    give_lanes(s.next, s.l);
                s.next.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, has_one));
                s.l.s.close();
            };
            EXPECT_EQ(ncclSuccess, during(bye, one, [&] { return s.sent == 1; }))
                << Log::get().text();
        });
    }
}

// And so does a receiver, of whose connections none but the new one may be left.
TEST(FailoverReceiving, IsClosedWithANewConnection)
{
    alone([] {
        Receiving r;
        has_one_message(r);
        begin_failover(r);
        r.ctrl.reset();
        std::atomic<bool> connected{false};
        std::thread peer([&] {
            r.connect_again(10);
            connected = true;
        });
        EXPECT_TRUE(eventually([&] {
            r.others.use();
            return connected.load();
        }));
        peer.join();
        r.close();
        EXPECT_EQ(1u, goodbye_of(r.next.ctrl));
    });
}

// If the old connection is lost, a sender that closes says so on the new connection alone.
TEST(FailoverReceiving, ThePeerClosesTheNewConnection)
{
    alone([] {
        Receiving r;
        r.ends(
            [&] {
                r.ctrl.send(lane_down());
                r.ctrl.reset();
                r.connect_again(10);
                r.next.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, {}));
                shutdown(r.next.ctrl.fd, SHUT_WR);
            },
            "the peer has closed its end of the comm");
    });
}

// A sender that fails gives its reason on the new connection.
TEST(FailoverReceiving, ItsErrorOnTheNewConnection)
{
    alone([] {
        setenv("NCCL_PVRDMA_STALL_ABORT", "1s", 1);
        Receiving r;
        r.ends(
            [&] {
                bool closed = false;
                r.ctrl.send(lane_down());
                r.ctrl.reset();
                r.connect_again(10);
                EXPECT_NE(std::string::npos,
                          r.next.ctrl.last_words(&closed).find("NCCL_PVRDMA_STALL_ABORT"));
                EXPECT_TRUE(closed);
            },
            "no new connection within 1 s (NCCL_PVRDMA_STALL_ABORT)");
    });
}

// A GOODBYE with a message number comes from a receiver only.
TEST(FailoverReceiving, AGoodbyeWithANumberFromASender)
{
    for (bool on_the_new_one : {false, true}) {
        alone([&] {
            Receiving r;
            r.ends(
                [&] {
                    raw::Bytes number(8);
                    EXPECT_EQ(8, pvn_goodbye_encode(number.data(), 8, 1));
                    r.ctrl.send(lane_down());
                    if (on_the_new_one)
                        r.connect_again(10);
                    (on_the_new_one ? r.next.ctrl : r.ctrl)
                        .send(raw::frame(PVN_FRAME_GOODBYE, number));
                },
                "the peer has closed its end of the comm");
        });
    }
}

} // namespace
