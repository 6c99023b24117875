/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The meaning of each counter, and the remedy when it grows. The names are those of the kernel:
 * ib_core for ports/N/counters; rxe, mlx5, mlx4, bnxt_re, irdma and efa for hw_counters (vmw_pvrdma
 * and siw have none); mlx5, bnxt, ice, i40e, ixgbe, vmxnet3, virtio_net, ena and hv_netvsc for
 * ethtool. Counters of mere traffic are left out. */
#include <ctype.h>
#include <string.h>

#include "topo/counters/counters.h"

/* Remedies that several counters share. */
static const char lost[] =
    "packets are lost between the hosts: make PFC or ECN alike on every adapter and switch port of "
    "the path (dcb pfc show, mlnx_qos), read the discards of the switch ports, and check cables and "
    "transceivers (ethtool -m)";
static const char receiver[] =
    "the receiving host posts its buffers too late: look for a rank whose CPU is busy elsewhere or "
    "throttled, and at pvn-topo stat there";
static const char wrong[] =
    "a request was refused: look at the log of the plugin, which names the connection, and at that "
    "of the peer";
static const char cable[] =
    "check cable, transceiver and port (ethtool -m, mlxlink; ibdiagnet on InfiniBand); swap the "
    "cable first";
static const char ring[] =
    "the host is too slow to empty its receive ring: enlarge it (ethtool -G DEVICE rx MAX), spread "
    "interrupts (ethtool -L), keep ranks off the CPUs that serve them";
static const char slow_down[] =
    "congestion control at work: in order in bursts; if it grows all the time, look for several "
    "senders to one port (incast), an oversubscribed uplink, or a slower port on the path";
static const char pause_in[] =
    "the switch holds this host back: look for the port that it is congested by; if one host sends "
    "pauses all the time, that host is the cause";
static const char pause_out[] =
    "this host cannot take its packets fast enough: look at its PCIe link (pvn-topo check), at "
    "memory and IOMMU, and at CPUs that are busy";
static const char vm_host[] =
    "the virtual adapter has no buffer or no slot left: enlarge its rings (ethtool -G), give the "
    "guest its CPUs for itself, and look at the host (esxcli network nic stats get)";
static const char allowance[] =
    "the instance's limit at the provider is reached: take a larger instance or send less";

#define PORT PVN_TOPO_COUNTER_PORT
#define HW   PVN_TOPO_COUNTER_HW
#define NET  PVN_TOPO_COUNTER_NET
#define ETH  PVN_TOPO_COUNTER_ETHTOOL
#define ERR  PVN_TOPO_COUNTER_ERROR
#define CONG PVN_TOPO_COUNTER_CONGESTION

static const struct pvn_topo_counter_info table[] = {
    /* Every InfiniBand port has these; drivers of Ethernet adapters fill in what they have. */
    {PORT, "symbol_error", ERR, 0xffff, "symbols arrived damaged on the wire", cable},
    {PORT, "link_error_recovery", ERR, 0xff, "the link was trained again after errors", cable},
    {PORT, "link_downed", ERR, 0xff, "the link went down", cable},
    {PORT, "port_rcv_errors", ERR, 0xffff, "packets arrived damaged", cable},
    {PORT, "port_rcv_remote_physical_errors", ERR, 0xffff,
     "packets came that an earlier hop had already marked as damaged",
     "the fault is on another link: find the port with symbol errors (ibdiagnet, ibqueryerrors)"},
    {PORT, "port_rcv_switch_relay_errors", ERR, 0xffff, "a switch could not forward packets",
     "routes of the fabric are missing or wrong: look at the subnet manager"},
    {PORT, "port_xmit_discards", ERR, 0xffff,
     "packets to send were thrown away: the port was down "
     "or held up for too long",
     lost},
    {PORT, "port_xmit_constraint_errors", ERR, 0xff, "packets to send were filtered",
     "partition keys or filters of the subnet manager forbid them"},
    {PORT, "port_rcv_constraint_errors", ERR, 0xff, "packets received were filtered",
     "partition keys or filters of the subnet manager forbid them"},
    {PORT, "local_link_integrity_errors", ERR, 0xf, "errors on the local link reached its limit",
     cable},
    {PORT, "excessive_buffer_overrun_errors", ERR, 0xf, "receive buffers of the port overran",
     "the credits of the link do not fit its buffers: update the firmware of adapter and switch"},
    {PORT, "VL15_dropped", ERR, 0xffff, "management packets were dropped",
     "too many queries of the subnet manager or of monitoring at once"},
    {PORT, "port_xmit_wait", CONG, 0xffffffff,
     "the port had something to send and no credits for it", slow_down},

    /* mlx5; other drivers use several of these names, too. */
    {HW, "out_of_sequence", ERR, 0, "packets arrived out of order, so that one before them is lost",
     lost},
    {HW, "packet_seq_err", ERR, 0, "the peer reported a gap in what it got (a NAK)", lost},
    {HW, "implied_nak_seq_err", ERR, 0, "a response came for a later request: one is lost", lost},
    {HW, "local_ack_timeout_err", ERR, 0,
     "an acknowledgement did not come in time, and the adapter sent again", lost},
    {HW, "rnr_nak_retry_err", ERR, 0, "the peer had no receive buffer posted", receiver},
    {HW, "duplicate_request", ERR, 0, "a request came twice: the first answer was lost or late",
     lost},
    {HW, "out_of_buffer", ERR, 0, "packets came and no receive buffer was posted", receiver},
    {HW, "roce_adp_retrans", ERR, 0, "packets were sent again by adaptive retransmission", lost},
    {HW, "roce_adp_retrans_to", ERR, 0, "adaptive retransmission ran into a timeout", lost},
    {HW, "roce_slow_restart", CONG, 0, "a connection began slowly again after an idle time",
     slow_down},
    {HW, "rx_icrc_encapsulated", ERR, 0, "RoCE packets had a wrong checksum (ICRC)",
     "something on the path changes packets: a faulty device, or a middlebox that rewrites them"},
    {HW, "req_cqe_error", ERR, 0, "work requests ended with an error", wrong},
    {HW, "resp_cqe_error", ERR, 0, "receives ended with an error", wrong},
    {HW, "req_remote_access_errors", ERR, 0, "the peer refused access to its memory", wrong},
    {HW, "req_remote_invalid_request", ERR, 0, "the peer called a request invalid", wrong},
    {HW, "resp_remote_access_errors", ERR, 0, "a peer accessed memory that it may not", wrong},
    {HW, "resp_local_length_error", ERR, 0, "a message was longer than its buffer", wrong},
    {HW, "req_transport_retries_exceeded", ERR, 0,
     "a connection was given up: no acknowledgement after all retries", lost},
    {HW, "req_rnr_retries_exceeded", ERR, 0,
     "a connection was given up: the peer never had a receive buffer", receiver},
    {HW, "np_ecn_marked_roce_packets", CONG, 0, "packets came that a switch had marked (ECN)",
     slow_down},
    {HW, "np_cnp_sent", CONG, 0, "this host requested a peer to slow down (CNP sent)", slow_down},
    {HW, "rp_cnp_handled", CONG, 0, "a peer requested this host to slow down (CNP received)",
     slow_down},
    {HW, "rp_cnp_ignored", CONG, 0, "requests to slow down were ignored",
     "enable congestion control for this priority (mlxreg, roce_rp in debugfs), or stop the marking"},

    /* Soft-RoCE. */
    {HW, "out_of_seq_request", ERR, 0,
     "requests arrived out of order, so that one before them is lost", lost},
    {HW, "rcvd_seq_err", ERR, 0, "the peer reported a gap in what it got (a NAK)", lost},
    {HW, "rcvd_rnr_err", ERR, 0, "the peer had no receive buffer posted", receiver},
    {HW, "send_rnr_err", ERR, 0, "a request came and no receive buffer was posted", receiver},
    {HW, "completer_retry_err", ERR, 0, "requests were sent again", lost},
    {HW, "retry_exceeded_err", ERR, 0,
     "a connection was given up: no acknowledgement after all retries", lost},
    {HW, "retry_rnr_exceeded_err", ERR, 0,
     "a connection was given up: the peer never had a receive buffer", receiver},
    {HW, "send_err", ERR, 0, "packets could not be sent",
     "look at the interface below Soft-RoCE: its state, its route, its queue (ip -s link)"},
    {HW, "link_downed", ERR, 0, "the link went down", cable},

    /* bnxt_re. */
    {HW, "to_retransmits", ERR, 0,
     "an acknowledgement did not come in time, and the adapter sent again", lost},
    {HW, "seq_err_naks_rcvd", ERR, 0, "the peer reported a gap in what it got (a NAK)", lost},
    {HW, "oos_drop_count", ERR, 0, "packets arrived out of order, so that one before them is lost",
     lost},
    {HW, "missing_resp", ERR, 0, "a response is missing", lost},
    {HW, "dup_req", ERR, 0, "a request came twice: the first answer was lost or late", lost},
    {HW, "max_retry_exceeded", ERR, 0,
     "a connection was given up: no acknowledgement after all retries", lost},
    {HW, "rnr_naks_rcvd", ERR, 0, "the peer had no receive buffer posted", receiver},
    {HW, "rx_out_of_buffer", ERR, 0, "packets came and no receive buffer was posted", receiver},
    {HW, "rx_roce_errors", ERR, 0, "RoCE packets arrived damaged", cable},
    {HW, "rx_roce_discards", ERR, 0, "RoCE packets were thrown away on arrival", ring},
    {HW, "rx_roce_error_pkts", ERR, 0, "RoCE packets arrived damaged", cable},
    {HW, "rx_roce_discard_pkts", ERR, 0, "RoCE packets were thrown away on arrival", ring},
    {HW, "unrecoverable_err", ERR, 0, "errors that ended a connection", wrong},
    {HW, "bad_resp_err", ERR, 0, "a response made no sense", wrong},
    {HW, "remote_access_err", ERR, 0, "the peer refused access to its memory", wrong},
    {HW, "remote_invalid_req_err", ERR, 0, "the peer called a request invalid", wrong},
    {HW, "remote_op_err", ERR, 0, "the peer could not carry out a request", wrong},
    {HW, "local_protection_err", ERR, 0, "a request named memory that is not registered", wrong},
    {HW, "res_tx_pci_err", ERR, 0, "PCIe errors when sending",
     "look at the adapter's PCIe link and at AER in dmesg"},
    {HW, "res_rx_pci_err", ERR, 0, "PCIe errors when receiving",
     "look at the adapter's PCIe link and at AER in dmesg"},
    {HW, "tx_cnp_pkts", CONG, 0, "this host requested a peer to slow down (CNP sent)", slow_down},
    {HW, "rx_cnp_pkts", CONG, 0, "a peer requested this host to slow down (CNP received)",
     slow_down},
    {HW, "rx_ecn_marked_pkts", CONG, 0, "packets came that a switch had marked (ECN)", slow_down},

    /* irdma, iWARP's names included. */
    {HW, "RetransSegs", ERR, 0, "segments were sent again", lost},
    {HW, "tcpRetransSegs", ERR, 0, "segments were sent again", lost},
    {HW, "ip4InDiscards", ERR, 0, "IPv4 packets were thrown away on arrival", ring},
    {HW, "ip6InDiscards", ERR, 0, "IPv6 packets were thrown away on arrival", ring},
    {HW, "ip4OutNoRoutes", ERR, 0, "there was no route for IPv4 packets",
     "give the peer a route (ip route get ADDRESS)"},
    {HW, "ip6OutNoRoutes", ERR, 0, "there was no route for IPv6 packets",
     "give the peer a route (ip -6 route get ADDRESS)"},
    {HW, "rxVlanErrors", ERR, 0, "packets came for a VLAN that is not set up",
     "make the VLANs of host and switch port alike"},
    {HW, "InProtoErrors", ERR, 0, "packets broke the protocol", lost},
    {HW, "RNR received", ERR, 0, "the peer had no receive buffer posted", receiver},
    {HW, "Nak Sequence Error", ERR, 0, "the peer reported a gap in what it got (a NAK)", lost},
    {HW, "RTO", ERR, 0, "an acknowledgement did not come in time, and the adapter sent again",
     lost},
    {HW, "cnpSent", CONG, 0, "this host requested a peer to slow down (CNP sent)", slow_down},
    {HW, "cnpHandled", CONG, 0, "a peer requested this host to slow down (CNP received)",
     slow_down},
    {HW, "cnpIgnored", CONG, 0, "requests to slow down were ignored",
     "enable congestion control for this traffic class, or stop the marking"},
    {HW, "RxECNMrkd", CONG, 0, "packets came that a switch had marked (ECN)", slow_down},

    /* efa. */
    {HW, "rx_drops", ERR, 0, "packets came and no receive buffer was posted", receiver},
    {HW, "retrans_pkts", ERR, 0, "packets were sent again", lost},
    {HW, "retrans_timeout_events", ERR, 0,
     "an acknowledgement did not come in time, and the adapter sent again", lost},
    {HW, "unresponsive_remote_events", ERR, 0, "a peer did not answer",
     "look whether that host is there, and at its security group"},

    /* Every interface. rx_dropped counts frames, too, that no protocol of this host takes (LLDP,
     * spanning tree), so it alone is no error. */
    {NET, "rx_crc_errors", ERR, 0, "frames arrived damaged", cable},
    {NET, "rx_frame_errors", ERR, 0, "frames arrived misaligned", cable},
    {NET, "rx_errors", ERR, 0, "frames arrived with errors", cable},
    {NET, "rx_fifo_errors", ERR, 0, "the adapter's buffer overran", ring},
    {NET, "rx_missed_errors", ERR, 0, "frames came while the receive ring was full", ring},
    {NET, "rx_over_errors", ERR, 0, "the receive ring overran", ring},
    {NET, "rx_dropped", CONG, 0,
     "frames were dropped: no buffer, or no protocol of this host takes "
     "them (LLDP and spanning tree count here, too)",
     ring},
    {NET, "tx_errors", ERR, 0, "frames could not be sent", cable},
    {NET, "tx_carrier_errors", ERR, 0, "the link was lost while sending", cable},
    {NET, "tx_aborted_errors", ERR, 0, "sending was aborted", cable},
    {NET, "tx_fifo_errors", ERR, 0, "the adapter got data too slowly to send",
     "look at the adapter's PCIe link (pvn-topo check)"},
    {NET, "tx_dropped", ERR, 0, "frames to send were dropped",
     "the send queue is full or the link is down: ip -s link, tc -s qdisc, a longer txqueuelen"},

    /* mlx5, and other drivers with the same names. */
    {ETH, "rx_out_of_buffer", ERR, 0, "packets came and no receive buffer was posted", ring},
    {ETH, "rx_discards_phy", ERR, 0, "the port had no buffer for packets", ring},
    {ETH, "tx_discards_phy", ERR, 0, "the port threw away packets to send", lost},
    {ETH, "tx_errors_phy", ERR, 0, "the port could not send packets", cable},
    {ETH, "rx_crc_errors_phy", ERR, 0, "packets arrived damaged", cable},
    {ETH, "rx_symbol_err_phy", ERR, 0, "symbols arrived damaged on the wire", cable},
    {ETH, "rx_pcs_symbol_err_phy", ERR, 0, "symbols arrived damaged and could not be corrected",
     cable},
    {ETH, "link_down_events_phy", ERR, 0, "the link went down", cable},
    {ETH, "rx_prio#_discards", ERR, 0, "the port had no buffer for packets of this priority",
     "give the priority a larger buffer and PFC (mlnx_qos), or move the traffic to one that has "
     "both"},
    {ETH, "rx_prio#_buf_discard", ERR, 0, "the port had no buffer for packets of this priority",
     "give the priority a larger buffer and PFC (mlnx_qos), or move the traffic to one that has "
     "both"},
    {ETH, "rx_prio#_cong_discard", ERR, 0, "packets of this priority were dropped by congestion",
     "give the priority a larger buffer and PFC (mlnx_qos), or move the traffic to one that has "
     "both"},
    {ETH, "rx_pause_ctrl_phy", CONG, 0, "the switch sent pauses", pause_in},
    {ETH, "tx_pause_ctrl_phy", CONG, 0, "this host sent pauses", pause_out},
    {ETH, "rx_prio#_pause", CONG, 0, "the switch sent pauses for this priority (PFC)", pause_in},
    {ETH, "tx_prio#_pause", CONG, 0, "this host sent pauses for this priority (PFC)", pause_out},
    {ETH, "tx_pause_storm_warning_events", ERR, 0, "this host has sent pauses for long", pause_out},
    {ETH, "tx_pause_storm_error_events", ERR, 0,
     "this host sent pauses for so long that the adapter stopped them", pause_out},
    {ETH, "outbound_pci_stalled_wr_events", CONG, 0, "writes to memory waited for PCIe", pause_out},

    /* bnxt. */
    {ETH, "rx_pause_frames", CONG, 0, "the switch sent pauses", pause_in},
    {ETH, "tx_pause_frames", CONG, 0, "this host sent pauses", pause_out},
    {ETH, "rx_pfc_ena_frames_pri#", CONG, 0, "the switch sent pauses for this priority (PFC)",
     pause_in},
    {ETH, "tx_pfc_ena_frames_pri#", CONG, 0, "this host sent pauses for this priority (PFC)",
     pause_out},
    {ETH, "rx_fcs_err_frames", ERR, 0, "frames arrived damaged", cable},
    {ETH, "rx_stat_discard", ERR, 0, "the port had no buffer for packets", ring},
    {ETH, "tx_stat_discard", ERR, 0, "the port threw away packets to send", lost},

    /* ice, i40e, ixgbe. */
    {ETH, "link_xoff_rx.nic", CONG, 0, "the switch sent pauses", pause_in},
    {ETH, "link_xoff_tx.nic", CONG, 0, "this host sent pauses", pause_out},
    {ETH, "rx_priority_#_xoff.nic", CONG, 0, "the switch sent pauses for this priority (PFC)",
     pause_in},
    {ETH, "tx_priority_#_xoff.nic", CONG, 0, "this host sent pauses for this priority (PFC)",
     pause_out},
    {ETH, "rx_dropped.nic", ERR, 0, "the port had no buffer for packets", ring},
    {ETH, "rx_crc_errors.nic", ERR, 0, "frames arrived damaged", cable},
    {ETH, "port.link_xoff_rx", CONG, 0, "the switch sent pauses", pause_in},
    {ETH, "port.link_xoff_tx", CONG, 0, "this host sent pauses", pause_out},
    {ETH, "port.rx_crc_errors", ERR, 0, "frames arrived damaged", cable},
    {ETH, "rx_no_dma_resources", ERR, 0, "the receive ring was empty", ring},
    {ETH, "rx_flow_control_xoff", CONG, 0, "the switch sent pauses", pause_in},
    {ETH, "tx_flow_control_xoff", CONG, 0, "this host sent pauses", pause_out},

    /* Virtual machines: vmxnet3 (a name for each queue), virtio_net, ena, hv_netvsc. */
    {ETH, "pkts rx OOB", ERR, 0, "the guest had no buffer for packets", vm_host},
    {ETH, "pkts rx err", ERR, 0, "packets arrived with errors", vm_host},
    {ETH, "rx buf alloc fail", ERR, 0, "no memory for receive buffers",
     "the guest runs out of memory: look at free -m and vm.min_free_kbytes"},
    {ETH, "drv dropped rx total", ERR, 0, "the driver dropped packets that arrived", vm_host},
    {ETH, "drv dropped tx total", ERR, 0, "the driver dropped packets to send", vm_host},
    {ETH, "pkts tx discard", ERR, 0, "the virtual switch threw away packets", vm_host},
    {ETH, "pkts tx err", ERR, 0, "packets could not be sent", vm_host},
    {ETH, "ring full", CONG, 0, "the send ring was full", vm_host},
    {ETH, "tx timeout count", ERR, 0, "sending stood still, and the adapter was reset", vm_host},
    {ETH, "rx_queue_*_drops", ERR, 0, "packets that arrived were dropped", vm_host},
    {ETH, "rx*_drops", ERR, 0, "packets that arrived were dropped", vm_host},
    {ETH, "tx_queue_*_tx_timeouts", ERR, 0, "sending stood still", vm_host},
    {ETH, "bw_in_allowance_exceeded", ERR, 0, "packets came beyond the bandwidth that is allowed",
     allowance},
    {ETH, "bw_out_allowance_exceeded", ERR, 0, "packets to send exceeded the bandwidth allowed",
     allowance},
    {ETH, "pps_allowance_exceeded", ERR, 0, "more packets per second than are allowed", allowance},
    {ETH, "rx_no_memory", ERR, 0, "no memory for receive buffers",
     "the guest runs out of memory: look at free -m and vm.min_free_kbytes"},
};

enum { ROWS = sizeof(table) / sizeof(table[0]) };

/* '#' and '*' stand for a number of at least one digit. */
static bool fits(const char *pattern, const char *name)
{
    for (; *pattern; pattern++) {
        if (*pattern != '#' && *pattern != '*') {
            if (*pattern != *name++)
                return false;
            continue;
        }
        if (!isdigit((unsigned char)*name))
            return false;
        name += strspn(name, "0123456789");
    }
    return *name == '\0';
}

const struct pvn_topo_counter_info *pvn_topo_counter_find(enum pvn_topo_counter_source source,
                                                          const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (table[i].source == source && fits(table[i].name, name))
            return &table[i];
    return NULL;
}

const struct pvn_topo_counter_info *pvn_topo_counter_table(int *n)
{
    *n = ROWS;
    return table;
}

const char *pvn_topo_counter_source_name(enum pvn_topo_counter_source s)
{
    static const char *const names[] = {"counters", "hw_counters", "statistics", "ethtool"};

    return names[s];
}

const char *pvn_topo_counter_kind_name(enum pvn_topo_counter_kind k)
{
    return k == PVN_TOPO_COUNTER_ERROR ? "error" : "congestion";
}
