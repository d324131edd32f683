// SPDX-License-Identifier: Apache-2.0
// One end of the medium: a TAP device in a network namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>

namespace medium
{

class Tap
{
  public:
    /// Creates the device NAME in the network namespace NETNS, from "NETNS/NAME"
    /// ("NAME" alone: in the current namespace), with this MAC address, and
    /// brings it up. It disappears when the process ends. Throws
    /// std::runtime_error.
    Tap(const std::string& where, const uint8_t mac[6]);
    Tap(const Tap&) = delete;

    /// Reads one Ethernet frame. Returns its size; 0: there is none, or an error.
    size_t Read(uint8_t* buffer, size_t size);
    void Write(const uint8_t* frame, size_t size);

    int Fd() const
    {
        return m_fd;
    }

  private:
    int m_fd;
};

} // namespace medium
