/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/addr.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sockaddr_in *in4(const struct sockaddr *sa)
{
    return (const struct sockaddr_in *)(const void *)sa;
}

static const struct sockaddr_in6 *in6(const struct sockaddr *sa)
{
    return (const struct sockaddr_in6 *)(const void *)sa;
}

socklen_t pvn_addr_len(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return sizeof(struct sockaddr_in);
    return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

uint16_t pvn_addr_port(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return ntohs(in4(sa)->sin_port);
    return sa->sa_family == AF_INET6 ? ntohs(in6(sa)->sin6_port) : 0;
}

void pvn_addr_set_port(struct sockaddr *sa, uint16_t port)
{
    if (sa->sa_family == AF_INET)
        ((struct sockaddr_in *)(void *)sa)->sin_port = htons(port);
    else if (sa->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)sa)->sin6_port = htons(port);
}

const char *pvn_addr_format_host(const struct sockaddr *sa, char *buf, size_t size)
{
    char text[INET6_ADDRSTRLEN], name[IF_NAMESIZE];
    unsigned scope;

    switch (sa->sa_family) {
    case AF_INET:
        inet_ntop(AF_INET, &in4(sa)->sin_addr, text, sizeof(text));
        snprintf(buf, size, "%s", text);
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &in6(sa)->sin6_addr, text, sizeof(text));
        scope = in6(sa)->sin6_scope_id;
        if (!scope)
            snprintf(buf, size, "%s", text);
        else if (if_indextoname(scope, name))
            snprintf(buf, size, "%s%%%s", text, name);
        else
            snprintf(buf, size, "%s%%%u", text, scope);
        break;
    default:
        snprintf(buf, size, "family %d", sa->sa_family);
        break;
    }
    return buf;
}

const char *pvn_addr_format(const struct sockaddr *sa, char *buf, size_t size)
{
    char host[PVN_ADDR_TEXT_LEN];
    uint16_t port = pvn_addr_port(sa);

    pvn_addr_format_host(sa, host, sizeof(host));
    if (!port)
        snprintf(buf, size, "%s", host);
    else if (sa->sa_family == AF_INET6)
        snprintf(buf, size, "[%s]:%u", host, port);
    else
        snprintf(buf, size, "%s:%u", host, port);
    return buf;
}

static int bad(const char *text, const char *why, struct pvn_err *err)
{
    pvn_err_set(err, -EINVAL,
                "'%.80s' is not an address: %s; write 192.0.2.1:4000 or [2001:db8::1]:4000", text,
                why);
    pvn_err_set_fault(err, PVN_FAULT_ARGUMENT);
    return -EINVAL;
}

static int parse_port(const char *s, uint16_t *port)
{
    unsigned long value = 0;

    if (!*s)
        return -EINVAL;
    for (; *s; s++) {
        if (!isdigit((unsigned char)*s))
            return -EINVAL;
        value = value * 10 + (unsigned long)(*s - '0');
        if (value > 65535)
            return -EINVAL;
    }
    *port = (uint16_t)value;
    return 0;
}

static int parse_scope(const char *s, uint32_t *scope)
{
    unsigned long value;
    char *end;

    *scope = if_nametoindex(s);
    if (*scope)
        return 0;
    if (!isdigit((unsigned char)*s))
        return -ENODEV;
    errno = 0;
    value = strtoul(s, &end, 10);
    *scope = (uint32_t)value;
    return errno || *end || value == 0 || value > UINT32_MAX ? -ENODEV : 0;
}

/* Splits `text` into host and port in place. An IPv6 address without brackets has no port. */
static int split(char *text, char **host, char **port)
{
    char *colon;

    *port = NULL;
    *host = text;
    if (*text == '[') {
        char *close = strchr(text, ']');

        if (!close)
            return -EINVAL;
        *close = '\0';
        *host = text + 1;
        if (close[1] == ':')
            *port = close + 2;
        else if (close[1])
            return -EINVAL;
        return 0;
    }
    colon = strchr(text, ':');
    if (colon && !strchr(colon + 1, ':')) {
        *colon = '\0';
        *port = colon + 1;
    }
    return 0;
}

int pvn_addr_parse(const char *text, struct sockaddr_storage *out, struct pvn_err *err)
{
    struct sockaddr_in *a4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)(void *)out;
    char copy[PVN_ADDR_TEXT_LEN], *host, *port, *percent;
    uint16_t number = 0;

    memset(out, 0, sizeof(*out));
    if (strlen(text) >= sizeof(copy))
        return bad(text, "too long", err);
    strcpy(copy, text);
    if (split(copy, &host, &port))
        return bad(text, "the bracket is not closed, or no port follows it", err);
    if (port && parse_port(port, &number))
        return bad(text, "the port is not a number from 0 to 65535", err);
    if (inet_pton(AF_INET, host, &a4->sin_addr) == 1) {
        a4->sin_family = AF_INET;
        a4->sin_port = htons(number);
        return 0;
    }
    percent = strchr(host, '%');
    if (percent)
        *percent = '\0';
    if (inet_pton(AF_INET6, host, &a6->sin6_addr) != 1) {
        memset(out, 0, sizeof(*out));
        return bad(text, "neither IPv4 nor IPv6 in numbers", err);
    }
    a6->sin6_family = AF_INET6;
    a6->sin6_port = htons(number);
    if (percent && parse_scope(percent + 1, &a6->sin6_scope_id)) {
        memset(out, 0, sizeof(*out));
        pvn_err_set(err, -ENODEV, "'%.80s': there is no interface '%s'", text, percent + 1);
        pvn_err_set_fault(err, PVN_FAULT_ARGUMENT);
        return -ENODEV;
    }
    return 0;
}

/* The address as 16 bytes, IPv4 mapped into IPv6. */
static bool as_16(const struct sockaddr *sa, uint8_t out[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    if (sa->sa_family == AF_INET6) {
        memcpy(out, &in6(sa)->sin6_addr, 16);
        return true;
    }
    if (sa->sa_family != AF_INET)
        return false;
    memcpy(out, mapped, sizeof(mapped));
    memcpy(out + 12, &in4(sa)->sin_addr, 4);
    return true;
}

static bool is_mapped(const struct sockaddr *sa)
{
    return sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6(sa)->sin6_addr);
}

static bool scopes_differ(const struct sockaddr *a, const struct sockaddr *b)
{
    return pvn_addr_is_link_local(a) && a->sa_family == AF_INET6 && b->sa_family == AF_INET6 &&
           in6(a)->sin6_scope_id != in6(b)->sin6_scope_id;
}

bool pvn_addr_same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    uint8_t x[16], y[16];

    return as_16(a, x) && as_16(b, y) && memcmp(x, y, 16) == 0 && !scopes_differ(a, b);
}

/* The four bytes of an IPv4 address, plain or mapped; NULL for any other IPv6 address. */
static const uint8_t *v4_bytes(const struct sockaddr *sa, uint8_t buf[16])
{
    if (sa->sa_family != AF_INET && !is_mapped(sa))
        return NULL;
    return as_16(sa, buf) ? buf + 12 : NULL;
}

bool pvn_addr_is_loopback(const struct sockaddr *sa)
{
    uint8_t buf[16];
    const uint8_t *v4 = v4_bytes(sa, buf);

    if (v4)
        return v4[0] == 127;
    return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6(sa)->sin6_addr);
}

bool pvn_addr_is_link_local(const struct sockaddr *sa)
{
    uint8_t buf[16];
    const uint8_t *v4 = v4_bytes(sa, buf);

    if (v4)
        return v4[0] == 169 && v4[1] == 254;
    return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6(sa)->sin6_addr);
}

bool pvn_addr_same_net(const struct sockaddr *a, const struct sockaddr *b, unsigned prefixlen)
{
    uint8_t x[16], y[16];
    unsigned whole, rest;

    if (a->sa_family != b->sa_family || !as_16(a, x) || !as_16(b, y) || scopes_differ(a, b))
        return false;
    if (a->sa_family == AF_INET)
        prefixlen += 96;
    if (prefixlen > 128)
        prefixlen = 128;
    whole = prefixlen / 8;
    rest = prefixlen % 8;
    if (memcmp(x, y, whole) != 0)
        return false;
    return rest == 0 || (x[whole] ^ y[whole]) >> (8 - rest) == 0;
}

bool pvn_addr_parse_network(const char *text, uint8_t raw[16], unsigned *bits)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const char *slash = strchr(text, '/');
    char addr[INET6_ADDRSTRLEN];
    unsigned base = 0;

    if (!slash || (size_t)(slash - text) >= sizeof(addr))
        return false;
    memcpy(addr, text, (size_t)(slash - text));
    addr[slash - text] = '\0';
    if (inet_pton(AF_INET, addr, raw + sizeof(mapped)) == 1) {
        memcpy(raw, mapped, sizeof(mapped));
        base = 96;
    } else if (inet_pton(AF_INET6, addr, raw) != 1) {
        return false;
    }
    size_t digits = strspn(slash + 1, "0123456789");
    if (digits < 1 || digits > 3 || slash[1 + digits] != '\0')
        return false;
    *bits = base + (unsigned)strtoul(slash + 1, NULL, 10);
    return *bits <= 128;
}
