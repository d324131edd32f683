// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/x509"
	"fmt"
)

// ReadAuthorities reads the certificates of authorities from a PEM file. A file
// without a certificate is an error, because no server would be trusted.
func ReadAuthorities(path string) (*x509.CertPool, error) {
	pem, err := readFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: contains no PEM certificate", path)
	}
	return pool, nil
}
