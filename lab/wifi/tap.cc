// SPDX-License-Identifier: Apache-2.0
#include "tap.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace medium
{

namespace
{

[[noreturn]] void
Fail(const std::string& where, const char* what)
{
    throw std::runtime_error("tap " + where + ": " + what + ": " + std::strerror(errno));
}

int
OpenTap(const std::string& where, const std::string& name, const uint8_t mac[6])
{
    ifreq request{};
    if (name.empty() || name.size() >= sizeof(request.ifr_name))
    {
        throw std::runtime_error("tap " + where + ": bad device name");
    }
    std::memcpy(request.ifr_name, name.c_str(), name.size());

    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
    {
        Fail(where, "/dev/net/tun");
    }
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (ioctl(fd, TUNSETIFF, &request) < 0)
    {
        Fail(where, "cannot create it");
    }
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    std::memcpy(request.ifr_hwaddr.sa_data, mac, 6);
    if (control < 0 || ioctl(control, SIOCSIFHWADDR, &request) < 0)
    {
        Fail(where, "cannot set its address");
    }
    if (ioctl(control, SIOCGIFFLAGS, &request) < 0)
    {
        Fail(where, "cannot read its flags");
    }
    request.ifr_flags |= IFF_UP;
    if (ioctl(control, SIOCSIFFLAGS, &request) < 0)
    {
        Fail(where, "cannot set it up");
    }
    close(control);
    return fd;
}

} // namespace

Tap::Tap(const std::string& where, const uint8_t mac[6])
{
    auto slash = where.find('/');
    if (slash == std::string::npos)
    {
        m_fd = OpenTap(where, where, mac);
        return;
    }
    // The device belongs to the namespace that this thread is in at TUNSETIFF;
    // the descriptor works in any namespace.
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int there = open(("/run/netns/" + where.substr(0, slash)).c_str(), O_RDONLY | O_CLOEXEC);
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET) < 0)
    {
        Fail(where, "cannot enter its network namespace");
    }
    m_fd = OpenTap(where, where.substr(slash + 1), mac);
    if (setns(home, CLONE_NEWNET) < 0)
    {
        Fail(where, "cannot return from its network namespace");
    }
    close(there);
    close(home);
}

size_t
Tap::Read(uint8_t* buffer, size_t size)
{
    ssize_t n = read(m_fd, buffer, size);
    return n > 0 ? n : 0;
}

void
Tap::Write(const uint8_t* frame, size_t size)
{
    // A full or closed device loses the frame, as a host's network card would.
    [[maybe_unused]] ssize_t n = write(m_fd, frame, size);
}

} // namespace medium
