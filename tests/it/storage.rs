//! Every store passes one suite.

mod memory {
    tns_tests::store_suite! { (tns_server_core::memory::MemoryStore::new(), ()) }
}

mod sqlite {
    tns_tests::store_suite! {{
        let dir = tempfile::tempdir().unwrap();
        (tns_server_store::open(&dir.path().join("tns.db")).unwrap(), dir)
    }}
}
