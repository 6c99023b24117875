/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Socket addresses, IPv4 and IPv6 with scope: comparing, printing, parsing. No name server is used. All
 * functions may be called from any thread. */
#ifndef PVN_BASE_ADDR_H
#define PVN_BASE_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

/* Room for "[", 45 bytes of an IPv6 address, "%", an interface name, "]:65535" and the final NUL. */
#define PVN_ADDR_TEXT_LEN 80

/* Bytes of a sockaddr of this family; 0 for one that is neither IPv4 nor IPv6. */
socklen_t pvn_addr_len(const struct sockaddr *sa);

/* The port in host byte order. For other families the port is 0, and setting it has no effect. */
uint16_t pvn_addr_port(const struct sockaddr *sa);
void pvn_addr_set_port(struct sockaddr *sa, uint16_t port);

/* Prints an address: "192.0.2.1:4000", "[2001:db8::1]:4000", "[fe80::1%eth0]:4000". A port of 0 is left out.
 * An unknown family prints as "family N". Returns buf. */
const char *pvn_addr_format(const struct sockaddr *sa, char *buf, size_t size);

/* Prints only the address, without brackets and port: "fe80::1%eth0". */
const char *pvn_addr_format_host(const struct sockaddr *sa, char *buf, size_t size);

/* Parses the format of pvn_addr_format. The scope may be the name or the number of an interface. Returns 0,
 * or with *err -EINVAL, or -ENODEV if there is no interface of that name. */
int pvn_addr_parse(const char *text, struct sockaddr_storage *out, struct pvn_err *err);

/* Parses a network, ADDRESS/PREFIX as "10.0.0.0/8" or "fd00::/64", into an address of 128 bits, where one of IPv4 is
 * mapped (::ffff:a.b.c.d), and the length of its prefix in these bits. False if the text is none; both are then
 * undefined. */
bool pvn_addr_parse_network(const char *text, uint8_t raw[16], unsigned *bits);

/* True if family, address and scope are equal; ports are ignored. An IPv4-mapped IPv6 address
 * (::ffff:a.b.c.d) equals the IPv4 address. */
bool pvn_addr_same_host(const struct sockaddr *a, const struct sockaddr *b);

bool pvn_addr_is_loopback(const struct sockaddr *sa);
bool pvn_addr_is_link_local(const struct sockaddr *sa);

/* True if both addresses have the same first `prefixlen` bits. Link-local addresses must also have the same
 * scope. */
bool pvn_addr_same_net(const struct sockaddr *a, const struct sockaddr *b, unsigned prefixlen);

#endif
