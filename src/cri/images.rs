//! The client: images and the room they take.
//!
//! Runs on the caller's thread. Each method is one call to the image service, which may have a socket
//! of its own. Never decides whether to pull, and never logs credentials.

use std::time::Duration;

use grpcio::Method;

use super::client::Client;
use super::error::{CriError, CriFailure};
use super::from_wire::{self, Problem};
use super::proto::{self, image_service as rpc};
use super::to_wire;
use super::transport::Ask;
use crate::api::runtime::{Image, ImageSpec, RegistryAuth, SandboxSpec};
use crate::api::runtime_stats::ImageFs;
use crate::util::cancel::Cancel;

impl Client {
    fn image_call<Req, Resp: Unpin>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        object: &str,
        cancel: &Cancel,
    ) -> Result<Resp, CriError> {
        self.images().unary(method, request, Ask { object, timeout: self.timeout(), cancel })
    }

    fn image_checked<T, Req, Resp>(
        &self,
        method: &Method<Req, Resp>,
        object: &str,
        result: Result<T, Problem>,
    ) -> Result<T, CriError> {
        result.map_err(|problem| self.images().error(method.name, object, CriFailure::Garbage(problem)))
    }

    /// All images.
    pub fn list_images(&self, cancel: &Cancel) -> Result<Vec<Image>, CriError> {
        let answer = self.image_call(&rpc::LIST_IMAGES, &proto::ListImagesRequest::new(), "", cancel)?;
        let images = answer.images.into_iter().map(from_wire::image).collect();
        self.image_checked(&rpc::LIST_IMAGES, "", images)
    }

    /// The image behind a name or id; `None` if the runtime does not hold it.
    pub fn image_status(&self, image: &ImageSpec, cancel: &Cancel) -> Result<Option<Image>, CriError> {
        let request =
            proto::ImageStatusRequest { image: Some(to_wire::image_spec(image)).into(), ..Default::default() };
        let answer = self.image_call(&rpc::IMAGE_STATUS, &request, &image.image, cancel)?;
        let found = answer.image.into_option().map(from_wire::image).transpose();
        self.image_checked(&rpc::IMAGE_STATUS, &image.image, found)
    }

    /// Pulls an image; answers the runtime's reference to it. CRI tells no progress, so `at_most`
    /// bounds the pull as a whole: runtimes end a pull without progress by themselves, earlier.
    pub fn pull_image(
        &self,
        image: &ImageSpec,
        auth: Option<&RegistryAuth>,
        sandbox: Option<&SandboxSpec>,
        at_most: Duration,
        cancel: &Cancel,
    ) -> Result<String, CriError> {
        let request = proto::PullImageRequest {
            image: Some(to_wire::image_spec(image)).into(),
            auth: auth.map(to_wire::auth).into(),
            sandbox_config: sandbox.map(to_wire::sandbox_config).into(),
            ..Default::default()
        };
        let ask = Ask { object: &image.image, timeout: at_most, cancel };
        let answer = self.images().unary(&rpc::PULL_IMAGE, &request, ask)?;
        let reference = Some(answer.image_ref).filter(|reference| !reference.is_empty());
        self.image_checked(&rpc::PULL_IMAGE, &image.image, reference.ok_or_else(|| "no image_ref".to_owned()))
    }

    /// Removes an image with all its names. Repeats are harmless.
    pub fn remove_image(&self, image: &ImageSpec, cancel: &Cancel) -> Result<(), CriError> {
        let request =
            proto::RemoveImageRequest { image: Some(to_wire::image_spec(image)).into(), ..Default::default() };
        self.image_call(&rpc::REMOVE_IMAGE, &request, &image.image, cancel).map(drop)
    }

    /// Where images (and writable layers) lie, and how much room they take.
    pub fn image_fs_info(&self, cancel: &Cancel) -> Result<ImageFs, CriError> {
        let answer = self.image_call(&rpc::IMAGE_FS_INFO, &proto::ImageFsInfoRequest::new(), "", cancel)?;
        Ok(ImageFs {
            images: answer.image_filesystems.into_iter().map(super::stats::filesystem).collect(),
            containers: answer.container_filesystems.into_iter().map(super::stats::filesystem).collect(),
        })
    }
}
