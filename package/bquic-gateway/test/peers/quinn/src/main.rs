// SPDX-License-Identifier: Apache-2.0

//! An HTTP/3 client of quinn and h3: one request, its body on standard output.
//!
//!     quinn-peer ADDRESS CA.pem URL [FILE]      FILE: what to POST

use std::{env, error::Error, fs, io::Write, sync::Arc};

use bytes::{Buf, Bytes};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::{pem::PemObject, CertificateDer};

/// Size of the pieces that an upload is written in.
const PIECE: usize = 64 << 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let (address, ca, url, upload) = match args.as_slice() {
        [address, ca, url] => (address, ca, url, None),
        [address, ca, url, file] => (address, ca, url, Some(Bytes::from(fs::read(file)?))),
        _ => return Err("usage: quinn-peer ADDRESS CA.pem URL [FILE]".into()),
    };
    let uri: http::Uri = url.parse()?;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca)?)?;
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let endpoint = quinn::Endpoint::client("0.0.0.0:0".parse()?)?;
    let connection = endpoint
        .connect_with(config, address.parse()?, uri.host().ok_or("no host in the URL")?)?
        .await?;

    let (mut driver, mut requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    let closed = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });

    let method = if upload.is_some() { "POST" } else { "GET" };
    let request = http::Request::builder().method(method).uri(uri).body(())?;
    let mut stream = requests.send_request(request).await?;
    if let Some(mut body) = upload {
        while !body.is_empty() {
            stream.send_data(body.split_to(body.len().min(PIECE))).await?;
        }
    }
    stream.finish().await?;

    let response = stream.recv_response().await?;
    let mut out = std::io::stdout().lock();
    while let Some(mut piece) = stream.recv_data().await? {
        while piece.has_remaining() {
            let n = out.write(piece.chunk())?;
            piece.advance(n);
        }
    }
    out.flush()?;
    drop(requests); // closes the connection
    let _ = closed.await;
    endpoint.wait_idle().await;
    if !response.status().is_success() {
        return Err(format!("status {}", response.status()).into());
    }
    Ok(())
}
